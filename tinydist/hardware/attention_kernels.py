"""Attention kernels: how fast the one that a program runs is, by length, head dimension and direction.

    FLOP/s = limit / (1 + half / tokens)         ``half``: the length at which a kernel reaches half of its limit

    FlashAttention-2, A100, 64 numbers a head, causal        512   1k   2k   4k   8k   16k tokens
    published, TFLOP/s, forward and backward                  88  119  140  156  165  171
    175 / (1 + 508 / tokens)                                  88  117  140  156  165  170

A kernel masks tiles on the diagonal that it has computed, and fills and drains its pipeline once per row of tiles;
both matter less, the longer the sequence. FLOPs of the two matmuls are 4 d T^2 a head, forward, halved by a causal
mask, and 2.5 times as many backward (FlashAttention-2, 2023, section 4.1: the convention of all tables).
"""

from functools import lru_cache

from ..rules import broken, count, flag, one_of, positive, validate, whole
from .kernels import START

TERA = 1e12
TILE = 128  # rows of queries that a thread block works on
PROCESSORS = {"A100": 108, "H100": 132, "H200": 132, "B200": 148, "GB200": 148}

# (limit in TFLOP/s, half in tokens) that have the least mean error on the published rows: mostly 0.3 to 2 %.
# (device, kernel, head_dim, causal): forward, backward. Where a table has one number for both, it is each of them.
#
# fa1, fa2, triton on A100, fa1 on H100: flash-attention@0251105a, assets/flash2_{a100,h100}_fwd_bwd_benchmark.png
#   (read). Triton's is, by what benchmark_flash_attention.py@60499abc imports (read), triton.ops.flash_attention.
# triton 2022: flash_attn_triton.py, compiled by Triton of December 2022, which llm-foundry has copied; causal.
#   128, backward, A100: 12.3, 66.5, 75.2 TFLOP/s of 197, 4096, 8192 tokens (xformers pull request 479, an excerpt,
#   read; it names no GPU: FlashAttention 1 beside it is as fast as on A100). Forward: 1.95 times FlashAttention 1's
#   (issue 405 of flash-attention, A100, an excerpt, read, which does not show the shape), which is 92: what its
#   backward, 71 and 76 there, leaves of the picture. 64: as triton. H100: nothing was published; 1.58 times an A100, as
#   FlashAttention 1 of 128 is, which has the same instructions.
# fa2 on H100: forward from assets/flash3_fp16_fwd.png, backward what is left of the other picture (both read).
# fa2 on A100, 128, causal, forward: aiconfigurator@095f58a5, a100_sxm, sglang 0.5.10 (read); backward the rest.
# fa3 on H100: forward flash3_fp16_fwd.png, backward of 128 tritonbench pull requests 1267 and 1256 (read). Of 64 no
#   backward was read: at the ratio of 128.
# triton on H100: flash3_fp16_fwd.png; no backward was read: as fa2's part of its forward.
# cudnn: 9.19 on H200 and 9.22 on GB200, cudnn-frontend@3929da2, sdpa_benchmark_training/results/llama3.1 (read), not
#   deterministic. Of 64, H100's forward is in flash3_fp16_fwd.png (cuDNN of 2024); GB200's is 0.63 of 128's, as
#   in aiconfigurator's b200_sxm, vllm 0.22.0 (read). B200 (1 kW) is GB200 (1.2 kW) by the cube root: 0.94.
#   "cudnn 2024" is H100's in flash3_fp16_fwd.png. Backward, where none was read: at the ratio of H200's 128.
FITTED = {
    ("A100", "fa1", 64, True): ((96, 385), (96, 385)),
    ("A100", "fa1", 128, True): ((83, 354), (83, 354)),
    ("A100", "fa1", 64, False): ((111, 111), (111, 111)),
    ("A100", "fa1", 128, False): ((81, 31), (81, 31)),
    ("A100", "triton", 64, True): ((81, 190), (81, 190)),
    ("A100", "triton", 128, True): ((80, 313), (80, 313)),
    ("A100", "triton", 64, False): ((101, 61), (101, 61)),
    ("A100", "triton", 128, False): ((96, 116), (96, 116)),
    ("A100", "triton 2022", 64, True): ((81, 190), (81, 190)),
    ("A100", "triton 2022", 128, True): ((179, 354), (86.5, 1233)),
    ("A100", "fa2", 64, True): ((175, 508), (175, 508)),
    ("A100", "fa2", 128, True): ((210, 407), (188, 525)),
    ("A100", "fa2", 64, False): ((179, 180), (179, 180)),
    ("A100", "fa2", 128, False): ((205, 182), (205, 182)),
    ("H100", "fa1", 64, True): ((152, 234), (152, 234)),
    ("H100", "fa1", 128, True): ((131, 174), (131, 174)),
    ("H100", "fa1", 64, False): ((162, 18), (162, 18)),
    ("H100", "fa1", 128, False): ((132, 19), (132, 19)),
    ("H100", "triton 2022", 64, True): ((128, 190), (128, 190)),
    ("H100", "triton 2022", 128, True): ((283, 354), (137, 1233)),
    ("H100", "fa2", 64, True): ((308, 359), (289, 629)),
    ("H100", "fa2", 128, True): ((349, 392), (324, 564)),
    ("H100", "fa2", 64, False): ((327, 83), (293, 252)),
    ("H100", "fa2", 128, False): ((378, 115), (332, 227)),
    ("H100", "triton", 64, True): ((412, 775), (387, 1360)),
    ("H100", "triton", 128, True): ((403, 763), (374, 1098)),
    ("H100", "triton", 64, False): ((410, 106), (367, 322)),
    ("H100", "triton", 128, False): ((401, 123), (352, 243)),
    ("H100", "fa3", 64, True): ((501, 790), (586, 3600)),
    ("H100", "fa3", 128, True): ((641, 527), (750, 3207)),
    ("H100", "fa3", 64, False): ((507, 268), (510, 1450)),
    ("H100", "fa3", 128, False): ((663, 215), (667, 1158)),
    ("H100", "cudnn 2024", 64, True): ((397, 388), (351, 576)),
    ("H100", "cudnn 2024", 128, True): ((552, 363), (488, 539)),
    ("H100", "cudnn 2024", 64, False): ((420, 130), (372, 261)),
    ("H100", "cudnn 2024", 128, False): ((610, 94), (540, 188)),
    ("H100", "cudnn", 64, True): ((397, 388), (351, 576)),
    ("H100", "cudnn", 128, True): ((713, 968), (630, 1438)),
    ("H100", "cudnn", 64, False): ((420, 130), (372, 261)),
    ("H100", "cudnn", 128, False): ((713, 258), (631, 517)),
    ("GB200", "cudnn", 64, True): ((1160, 1389), (901, 1262)),
    ("GB200", "cudnn", 128, True): ((1841, 1389), (1430, 1262)),
    ("GB200", "cudnn", 64, False): ((1098, 443), (894, 538)),
    ("GB200", "cudnn", 128, False): ((1743, 443), (1419, 538)),
}
KERNELS = tuple(dict.fromkeys(kernel for _, kernel, _, _ in FITTED))
# As fast as another device with the same multiprocessors, but for the power limit.
LIKE = {"H200": ("H100", 1.0), "B200": ("GB200", (1000 / 1200) ** (1 / 3))}


def version_numbers(value):
    """the numbers of a version, as (2, 5)"""
    return isinstance(value, tuple) and len(value) >= 2 and all(map(whole, value))


@validate(device=one_of(tuple(PROCESSORS)), version=version_numbers)
def torch_kernel(device, version=(2, 13)) -> str:
    """Of scaled_dot_product_attention without a mask, in 16 bits.

    FlashAttention-2 since PyTorch 2.2 (its release notes, read). With a cuDNN above 9.15, cuDNN comes first on Hopper
    and Blackwell (pytorch, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, check_prefer_cudnn_attention, an
    excerpt read): not in 2.9.1, but in 2.13 (secondary); taken to be 2.10. On B200, torchtitan asks for cuDNN (pull
    request 1196, read).
    """
    if device in ("B200", "GB200"):
        return "cudnn"
    if device in ("H100", "H200"):
        return "cudnn" if version >= (2, 10) else "fa2" if version >= (2, 2) else "fa1"
    return "fa2" if version >= (2, 2) else "fa1"


@validate(
    device=str,
    kernel=one_of(KERNELS),
    heads=count,
    tokens=count,
    head_dim=count,
    keys=count,
    causal=flag,
    backward=flag,
    slowed=positive,
)
def attention_time(
    device, kernel, heads, tokens, head_dim, causal=True, backward=False, keys=None, slowed=1.0
) -> float:
    """Seconds of one call. ``heads``: of queries, times the micro-batch. ``keys``: as many as ``tokens``, unless given
    (a rank of context parallelism). ``slowed``: part of the rate that another power limit leaves."""
    keys = keys or tokens
    flops = 4 * heads * tokens * keys * head_dim * (2.5 if backward else 1) / (2 if causal else 1)
    return START + flops / (slowed * attention_rate(device, kernel, heads, tokens, head_dim, causal, backward))


@lru_cache(10_000)
def attention_rate(device, kernel, heads, tokens, head_dim, causal=True, backward=False) -> float:
    """FLOP/s; less, if there are fewer tiles of queries than multiprocessors. Between 64 and 128 numbers of a head it
    is interpolated, outside it is that of the nearer."""
    like, power = LIKE.get(device, (device, 1.0))
    low, high = (saturating(device, like, kernel, dim, causal, backward, tokens) for dim in (64, 128))
    part = min(1.0, max(0.0, (head_dim - 64) / 64))
    busy = min(1.0, heads * -(-tokens // TILE) / PROCESSORS[device])
    return TERA * power * busy * (low + part * (high - low))


def saturating(device, like, kernel, head_dim, causal, backward, tokens):
    """TFLOP/s at this length."""
    if (like, kernel, head_dim, causal) not in FITTED:
        raise not_measured(device, like, kernel, head_dim, causal)
    limit, half = FITTED[like, kernel, head_dim, causal][backward]
    return limit / (1 + half / tokens)


def not_measured(device, like, kernel, head_dim, causal):
    """The error that says so."""
    known = sorted({each for name, each, *how in FITTED if (name, *how) == (like, head_dim, causal)})
    if known:
        return broken("attention", "kernel", one_of(known), kernel)
    return ValueError(f"attention: no kernel was measured on {device!r}; available: {', '.join(map(repr, PROCESSORS))}")


@validate(heads=count, micro_batch=count, tokens=count, longest=count)
def fused_softmax_available(heads, micro_batch, tokens, longest=4096) -> bool:
    """Whether Megatron-LM's fused softmax runs for causal attention with so many heads per rank, instead of separate
    operators in float32: scale, mask, softmax, and two conversions.

    16 < tokens <= 4096 (2048 until 2022), divisible by 4; and heads x micro_batch divisible by 4 and by the rows that a
    thread block of 128 threads works on: 4, or 8 of up to 128 tokens, more below 32. (Megatron-LM@00caa53a,
    core/fusions/fused_softmax.py, is_kernel_available, and its get_batch_per_block, read; 2048: older copies of it.)
    """
    power_of_2 = 1 << (tokens - 1).bit_length()
    rows = 128 // min(power_of_2, 32) * (2 if power_of_2 <= 128 else 1)
    sequences = heads * micro_batch
    return 16 < tokens <= longest and tokens % 4 == 0 and sequences % 4 == 0 and sequences % rows == 0
