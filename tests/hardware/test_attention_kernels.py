"""Attention kernels, held against the published rows that they were fitted to, and rules of who runs which."""

import pytest

from tinydist.hardware.attention_kernels import (
    FITTED,
    KERNELS,
    attention_rate,
    attention_time,
    fused_softmax_available,
    torch_kernel,
)

LENGTHS = 512, 1024, 2048, 4096, 8192, 16384
# TFLOP/s of 16384 tokens in sequences of these lengths, 2048 numbers over all heads (flash-attention@0251105a, assets).
BOTH = {
    ("A100", "fa2", 64, True): (88, 119, 140, 156, 165, 171),
    ("A100", "fa2", 128, True): (99, 133, 155, 173, 182, 189),
    ("A100", "fa2", 128, False): (151, 173, 187, 196, 201, 203),
    ("A100", "triton", 128, True): (50, 61, 68, 74, 78, 80),
    ("H100", "fa2", 64, True): (141, 192, 232, 257, 273, 284),
    ("H100", "fa2", 128, True): (163, 221, 265, 294, 308, 328),
    ("H100", "fa2", 128, False): (248, 294, 320, 326, 335, 338),
}
FORWARD = {
    ("H100", "fa3", 64, True): (197, 265, 371, 420, 460, 473),
    ("H100", "fa3", 128, True): (292, 423, 521, 579, 602, 616),
    ("H100", "fa3", 128, False): (467, 565, 625, 638, 646, 648),
    ("H100", "cudnn 2024", 128, True): (315, 410, 484, 518, 529, 539),
    ("H100", "triton", 128, False): (323, 372, 389, 389, 392, 395),
}


def heads_of(tokens, head_dim):
    return 16384 // tokens * 2048 // head_dim


def rate(device, kernel, tokens, head_dim, causal, passes):
    heads = heads_of(tokens, head_dim)
    seconds = sum(attention_time(device, kernel, heads, tokens, head_dim, causal, each) for each in passes)
    flops = sum(4 * heads * tokens**2 * head_dim * (2.5 if each else 1) for each in passes)
    return flops / seconds / (2 if causal else 1) / 1e12


@pytest.mark.parametrize(("published", "passes"), [(BOTH, (False, True)), (FORWARD, (False,))])
def test_published_rows(published, passes):
    for (device, kernel, head_dim, causal), row in published.items():
        errors = [
            rate(device, kernel, tokens, head_dim, causal, passes) / each - 1
            for tokens, each in zip(LENGTHS, row, strict=True)
        ]
        assert max(map(abs, errors)) < 0.10 and sum(map(abs, errors)) / 6 < 0.04, (device, kernel, head_dim, errors)


def test_backward_of_2022_in_triton():
    """160 heads of 128 numbers, one sequence, A100, float16, and 512 of 197 tokens, bfloat16 (xformers#479)."""
    for heads, tokens, microseconds in ((512, 197, 1030.0), (160, 4096, 25831.9), (160, 8192, 91356.3)):
        seconds = attention_time("A100", "triton 2022", heads, tokens, 128, True, True)
        assert seconds == pytest.approx(microseconds * 1e-6, rel=0.05)


def test_without_a_mask_nothing_of_2022_was_measured():
    with pytest.raises(ValueError, match="kernel must be one of fa1, fa2, triton, got 'triton 2022'"):
        attention_rate("A100", "triton 2022", 64, 2048, 128, causal=False)
    rates = [attention_rate("H100", "triton 2022", 64, tokens, 128, True, True) for tokens in LENGTHS]
    assert rates == sorted(rates)


def test_cudnn_on_h200():
    """Of 2k to 32k tokens, 64 heads (cudnn-frontend@3929da2, H200, llama3.1)."""
    for tokens, forward, backward in ((2048, 484, 370), (4096, 591, 474), (8192, 644, 541), (32768, 688, 581)):
        flops = 2 * 64 * tokens**2 * 128
        for part, published in ((False, forward), (True, backward)):
            seconds = attention_time("H200", "cudnn", 64, tokens, 128, True, part)
            assert flops * (2.5 if part else 1) / seconds / 1e12 == pytest.approx(published, rel=0.07)


@pytest.mark.parametrize("key", [key for key in FITTED if (*key[:3], False) in FITTED])
def test_longer_is_never_slower_per_flop_and_a_mask_never_makes_it_faster(key):
    device, kernel, head_dim, _ = key
    for backward in (False, True):
        rates = [attention_rate(device, kernel, 4096, tokens, head_dim, True, backward) for tokens in LENGTHS]
        assert rates == sorted(rates)
        assert rates[0] < attention_rate(device, kernel, 4096, 512, head_dim, False, backward)


def test_heads_between_those_measured_and_devices_alike():
    below, between, above = (attention_rate("A100", "fa2", 64, 2048, dim) for dim in (64, 96, 128))
    assert between == pytest.approx((below + above) / 2)
    assert attention_rate("H200", "fa3", 64, 2048, 128) == attention_rate("H100", "fa3", 64, 2048, 128)
    assert 0.9 < attention_rate("B200", "cudnn", 64, 2048, 128) / attention_rate("GB200", "cudnn", 64, 2048, 128) < 1


def test_few_tiles_leave_multiprocessors_idle():
    full, few = (attention_rate("A100", "fa2", heads, 2048, 128) for heads in (64, 2))
    assert few == pytest.approx(full * 2 * 16 / 108)


def test_which_kernel_torch_runs():
    assert torch_kernel("A100", (2, 1)) == "fa1" and torch_kernel("A100") == "fa2"
    assert torch_kernel("H100", (2, 5)) == "fa2" and torch_kernel("H100") == "cudnn" == torch_kernel("B200", (2, 7))


def test_errors_say_what_is_available():
    with pytest.raises(ValueError, match=f"attention_time: kernel must be one of {', '.join(KERNELS)}, got 'fa9'"):
        attention_time("A100", "fa9", 8, 512, 64)
    with pytest.raises(ValueError, match="attention: kernel must be one of fa1, fa2, triton, triton 2022, got 'fa3'"):
        attention_time("A100", "fa3", 8, 512, 64)
    with pytest.raises(ValueError, match="no kernel was measured on 'V100'; available: 'A100', 'H100'"):
        attention_time("V100", "fa2", 8, 512, 64)


def test_fused_softmax_needs_divisible_heads():
    """BLOOM's 112 heads over 4 ranks are 28, divisible by 4; 108 over 4 are 27, which are not."""
    assert fused_softmax_available(28, 1, 2048) and not fused_softmax_available(27, 1, 2048)
    assert fused_softmax_available(27, 4, 2048)
    assert not fused_softmax_available(28, 1, 8192) and not fused_softmax_available(28, 1, 16)
    assert not fused_softmax_available(28, 1, 4096, longest=2048)
    assert fused_softmax_available(8, 1, 128) and not fused_softmax_available(4, 1, 128)
