"""Published rates of attention kernels on H100s: forward, 128 numbers a head, no mask, 16 bits, in TFLOP/s.

FLASH_3     five kernels by tokens, of one measurement
OTHER_RUNS  the same kinds of kernels, as others ran them: where and when
GPT2_STEP   attention with its scores in memory, and in tiles, forward and backward, on an A100
"""

from typing import NamedTuple

TOKENS = (1024, 2048, 4096, 8192)


def by_tokens(*rates):
    return dict(zip(TOKENS, rates, strict=True))


# FlashAttention-3, arXiv 2407.08608v1 of July 2024, figure 5 (read): H100 80GB SXM5, 16,384 tokens in all, 2,048 wide.
# Of the line of Triton the paper says that it uses H100's own instructions.
FLASH_3 = {
    "three kernels": by_tokens(100, 119, 133, 139),
    "FlashAttention-2": by_tokens(350, 362, 368, 370),
    "in Triton": by_tokens(372, 389, 389, 392),
    "cuDNN": by_tokens(574, 617, 609, 600),
    "FlashAttention-3": by_tokens(565, 625, 638, 646),
}

# All read as excerpts, of:
#   June 2024, H100: pytorch/benchmark pull request 2296. "sdpa" is what PyTorch chose by itself then.
#   January 2025, H100 of a developers' machine: meta-pytorch/tritonbench issue 141.
#   July 2025: facebookexperimental/triton pull requests 205 and 206, 4 sequences of 32 heads; the GPU is not named.
#   September 2026, Hopper: meta-pytorch/tritonbench pull request 1254, 4 sequences of 48 heads.
OTHER_RUNS = {
    ("FlashAttention-2 by SDPA", "June 2024"): by_tokens(287, 293, 298, 288),
    ("Triton's tutorial", "June 2024"): by_tokens(353, 385, 405, 413),
    ("Triton's tutorial", "January 2025"): {8192: 469},
    ("Triton's tutorial", "July 2025"): by_tokens(407, 428, 460, 464),
    ("Triton, TLX", "July 2025"): by_tokens(478, 568, 549, 581),
    ("Triton, TLX", "September 2026"): by_tokens(465, 529, 581, 579),
    ("cuDNN", "January 2025"): {8192: 582},
    ("FlashAttention-3", "January 2025"): {8192: 466},
    ("FlashAttention-3", "September 2026"): by_tokens(541, 618, 628, 639),
}


class Measured(NamedTuple):
    """GB read from and written to HBM, and ms."""

    gigabytes: float
    milliseconds: float


# FlashAttention, arXiv 2205.14135, figure 2 (read): GPT-2 medium's attention, forward and backward, 1,024 tokens, 16
# heads of 64, 64 sequences, A100.
GPT2_STEP = {"three kernels": Measured(40.3, 41.7), "flash attention": Measured(4.4, 7.3)}
