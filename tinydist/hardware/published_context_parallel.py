"""Published measurements of context parallelism: attention over several GPUs, training runs, and the ring's bound.

RINGS           calls/s of attention on 8 GPUs: alone (an eighth of one GPU's), a contiguous ring, zig-zag, stripes
GATHERS         of the same kind, of packed sequences: two rings, and all keys gathered (contiguous parts)
RING_BLOCKS     tokens of the least block that hides its messages, as the paper prints them
STRIPES         striped attention: times faster than a contiguous ring, end to end
LLAMA_3         training runs of Llama 3 405B, with and without context parallelism
STYLES          tokens/s of one model by Ulysses and by an all-gather of contiguous parts
ON_TPUS         FLOP/s of a chip by Ulysses, an all-gather and a ring
BOTH_ON_TPUS    seconds of a step on 64 chips: an all-gather, a ring, and rings of Ulysses groups; contiguous parts
BALANCED_ON_TPUS    the same with zig-zag parts
WITH_AND_WITHOUT    FLOP/s of a GPU with context parallelism, and the best that was found without

Sources. RINGS, GATHERS: zhuzilin/ring-flash-attention@01c8baf5, README (read): Llama 3 8B's attention, causal, 8,192
tokens a GPU, one sequence, FlashAttention 2, GPUs joined by NVLink. RING_BLOCKS: Liu et al. 2023, arXiv 2310.01889,
table 2 (read in a transcription, viktor-shcherb/msc_thesis@7336389f). STRIPES: Brandon et al. 2023, arXiv 2311.09431,
abstract (read). LLAMA_3: Llama Team 2024, arXiv 2407.21783, table 4 (read). STYLES: PrimeIntellect-ai/prime-rl pull
request 2418, May 2026 (an excerpt, read): GLM-4.5-Air, 8 H200, sequences of 64k tokens, steps in tokens/s. It says
"ring"; its code (models/layers/ring_attn.py, ring_fa3_varlen_func, read) gathers all keys. ON_TPUS: AI-Hypercomputer/
maxtext pull request 4687, July 2026 (an excerpt, read): Llama 2 7B, 32k tokens on 16 of 64 TPU v5p; its second table,
of Llama 3.1 8B on 4 of the 64, was cut off. BOTH_ON_TPUS: pull request 4836 of the same, August 2026 (an excerpt, read;
its page says closed, but its code is in src/maxtext/kernels/attention/usp_attention.py@825cbdd3): Llama 3 8B, one
sequence on 64 TPU v5p, median step, no load balancing. BALANCED_ON_TPUS: pull request 4893, August 2026 (an excerpt,
read): the same with ``context_parallel_load_balance``. WITH_AND_WITHOUT: NVIDIA/NeMo@0aa26711,
docs/source/performance/performance_long_sequence.md (read): Llama 2 7B in FP8 on DGX H100, NeMo 24.03.01; the rows with
a context-parallel degree above 1 (those of 4, 8 and 16 times 1,024 tokens have 1, and no gain).
"""

from typing import NamedTuple


class Rates(NamedTuple):
    """Calls/s. ``alone``: of flash attention on one GPU, whose 1/8 is what 8 GPUs can reach at best."""

    alone: float
    contiguous: float
    zigzag: float
    striped: float


FORWARD, BOTH = "forward", "forward and backward"
TOKENS, HEADS, KV_HEADS, HEAD_DIM, GPUS = 8192, 32, 8, 128, 8  # of RINGS; tokens of a GPU
RINGS = {
    ("H800", FORWARD): Rates(591.5, 38.5, 63.0, 55.0),
    ("H800", BOTH): Rates(154.7, 10.4, 17.4, 16.0),
    ("A100", FORWARD): Rates(373.4, 24.0, 38.2, 32.5),
    ("A100", BOTH): Rates(94.7, 6.2, 10.6, 9.75),
}


class Gathered(NamedTuple):
    """Calls/s."""

    alone: float
    contiguous: float
    zigzag: float
    gathered: float  # contiguous: there is no zig-zag


GATHERS = {
    ("H800", FORWARD): Gathered(852.4, 52.4, 74.8, 60.8),
    ("H800", BOTH): Gathered(225.4, 14.4, 21.4, 16.4),
    ("A100", FORWARD): Gathered(532.3, 33.1, 47.9, 34.3),
    ("A100", BOTH): Gathered(133.8, 8.7, 13.4, 9.7),
}


class RingBlock(NamedTuple):
    flops: float  # FLOP/s of a device
    bandwidth: float  # bytes/s between two
    tokens: float  # of a block, as printed


RING_BLOCKS = {
    "A100, NVLink": RingBlock(312e12, 300e9, 1.0e3),
    "A100, InfiniBand": RingBlock(312e12, 12.5e9, 24.5e3),
    "TPU v3": RingBlock(123e12, 112e9, 1.1e3),
    "TPU v4": RingBlock(275e12, 268e9, 1.0e3),
    "TPU v5e": RingBlock(196e12, 186e9, 1.1e3),
}

STRIPES = {"8 A100, 262,144 tokens, up to": 1.45, "16 TPU v4, 786,432 tokens": 1.65}


class LongRun(NamedTuple):
    gpus: int
    tp: int
    cp: int
    pp: int
    dp: int
    tokens: int  # of a sequence
    flops: float  # FLOP/s of a GPU
    mfu: float


LLAMA_3 = (
    LongRun(8_192, 8, 1, 16, 64, 8_192, 430e12, 0.43),
    LongRun(16_384, 8, 1, 16, 128, 8_192, 400e12, 0.41),
    LongRun(16_384, 8, 16, 16, 8, 131_072, 380e12, 0.38),
)


class Styles(NamedTuple):
    """Tokens/s, and what 1 rank reaches."""

    one: float
    ulysses: float
    gathered: float


STYLES = {2: Styles(84e3, 77e3, 60e3), 4: Styles(84e3, 85e3, 57e3)}  # by context-parallel degree

ON_TPUS = {"Ulysses": 239.4e12, "all-gather": 242.7e12, "ring": 130.8e12}

BOTH_ON_TPUS = {  # (ranks of a ring, of a Ulysses group), or all-gather -> tokens of a chip -> seconds
    "all-gather": {1_024: 1.31, 2_048: 4.03, 4_096: 14.33},
    (64, 1): {1_024: 1.68, 2_048: 4.63, 4_096: 15.35},
    (32, 2): {1_024: 1.65, 2_048: 4.52, 4_096: 14.72},
    (16, 4): {1_024: 1.31, 2_048: 4.02, 4_096: 13.92},
    (8, 8): {1_024: 1.44, 2_048: 4.05, 4_096: 13.65},
}

BALANCED_ON_TPUS = {
    "all-gather": {1_024: 1.09, 2_048: 2.98, 4_096: 9.71},
    (64, 1): {1_024: 1.42, 2_048: 3.71, 4_096: 10.78},
    (32, 2): {1_024: 1.38, 2_048: 3.49, 4_096: 10.24},
    (16, 4): {1_024: 1.04, 2_048: 2.88, 4_096: 9.50},
    (8, 8): {1_024: 1.20, 2_048: 2.93, 4_096: 9.34},
}


class Compared(NamedTuple):
    """FLOP/s of a GPU. ``gpus``: as many as tokens in 1,024."""

    gpus: int
    cp: int
    without: float
    with_cp: float


WITH_AND_WITHOUT = {  # tokens of a sequence
    32_768: Compared(32, 2, 595e12, 610e12),
    65_536: Compared(64, 2, 534e12, 574e12),
    131_072: Compared(128, 4, 424e12, 555e12),
    262_144: Compared(256, 8, 392e12, 549e12),
    524_288: Compared(512, 16, 104e12, 549e12),
    1_048_576: Compared(1024, 32, 26.5e12, 536e12),
}
