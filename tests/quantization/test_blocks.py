"""Blocks beside the package gguf, byte for byte; what they lose; errors."""

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tinydist.quantization import FORMATS, Blocks, quantize

OF_32 = [name for name, each in FORMATS.items() if each.weights == 32]
ERRORS = {  # of normal numbers, relative; the first four as published with gguf 0.19.0, the last two are measured
    "Q4_0": 0.0861, "Q4_1": 0.0783, "Q5_0": 0.0428, "Q8_0": 0.00536, "Q4_K": 0.0715, "Q6_K": 0.0173,
}  # fmt: skip


def theirs(name):
    return gguf.GGMLQuantizationType[name]


def same_bits(ours, their):
    return np.array_equal(ours.numpy().view(np.uint32), their.view(np.uint32))


@st.composite
def adversarial(draw):
    """A block of 256: of very different sizes, ties, zeros, one sign, one outlier. None so small that 1 / d is none."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    x = torch.randn(256, generator=generator) * 10.0 ** draw(st.integers(-30, 3))
    kind = draw(st.sampled_from(["normal", "ties", "zeros", "one sign", "outlier", "steps", "sizes"]))
    if kind == "ties":
        x = x.sign() * x.abs().amax()
    if kind == "zeros":
        x = x * (torch.rand(256, generator=generator) < draw(st.sampled_from([0.0, 0.1, 0.9])))
    if kind == "one sign":
        x = x.abs() * draw(st.sampled_from([-1, 1])) + draw(st.sampled_from([0, 1]))
    if kind == "outlier":
        x[draw(st.integers(0, 255))] *= 60
    if kind == "steps":
        x = torch.randint(-17, 18, (256,), generator=generator) * draw(st.sampled_from([0.5, 1.0, 1e-3]))
    if kind == "sizes":
        x = x * 10.0 ** torch.randint(-6, 1, (256,), generator=generator)
    return x.clamp(-65504, 65504) + 0.0  # no -0: which of two zeros is the least depends on the processor


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(x=adversarial())
def test_gguf_reads_our_blocks_as_we_do(name, x):
    blocks = quantize(x, name)
    assert same_bits(blocks.dequantize(), gguf.dequantize(blocks.data.numpy(), theirs(name)))
    if name in OF_32:
        assert np.array_equal(blocks.data.numpy(), gguf.quantize(x.numpy(), theirs(name)))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_any_bytes_are_read_as_gguf_reads_them(name):
    """Those that nobody has quantized, too: scales that are inf or NaN."""
    format = FORMATS[name]
    data = torch.randint(
        0, 256, (500, 2 * format.nbytes), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    ours, their = Blocks(data, format).dequantize(), gguf.dequantize(data.numpy(), theirs(name))
    assert np.array_equal(ours.numpy(), their, equal_nan=True)


@pytest.mark.parametrize("name", FORMATS)
def test_error_on_normal_numbers(name):
    x = torch.randn(64, 4096, generator=torch.Generator().manual_seed(0))
    error = ((quantize(x, name).dequantize() - x).norm() / x.norm()).item()
    assert error == pytest.approx(ERRORS[name], rel=0.01)


@pytest.mark.parametrize("name", FORMATS)
def test_sizes(name):
    format = FORMATS[name]
    blocks = quantize(torch.zeros(2, 3, 512), name)
    assert blocks.shape == (2, 3, 512) and blocks.dequantize().eq(0).all()
    assert blocks.nbytes == 512 * 6 / format.weights * format.nbytes
    assert (format.weights, format.nbytes) == gguf.GGML_QUANT_SIZES[theirs(name)] and format.code == theirs(name)


def test_by_hand():
    x = torch.zeros(32)
    x[:4] = torch.tensor([-8.0, 7.6, 8.0, -7.0])
    blocks = quantize(x, "Q4_0")
    assert bytes(blocks.data.tolist()).hex(" ") == "00 3c 80 8f 8f 81" + " 88" * 12
    assert blocks.dequantize()[:5].tolist() == [-8, 7, 7, -7, 0]


def test_numbers_too_small_for_an_inverse_become_zero():
    assert quantize(torch.full((32,), 1e-44), "Q4_0").dequantize().eq(0).all()


@pytest.mark.parametrize(
    "x, format, words",
    [
        (torch.zeros(3, 48), "Q4_0", r"quantize: Q4_0: the last dim must be a multiple of 32, .*, got \[3, 48\]"),
        (torch.zeros(3, 96), "Q4_K", "quantize: Q4_K: the last dim must be a multiple of 256"),
        (torch.full((32,), 1e5), "Q8_0", "finite and at most 65504, got 100000.0"),
        (torch.full((32,), float("nan")), "Q8_0", "finite and at most 65504, got nan"),
        (torch.zeros(32), "Q3_K", "format must be"),
    ],
)
def test_errors(x, format, words):
    with pytest.raises(ValueError, match=words):
        quantize(x, format)


def test_bytes_that_are_no_blocks():
    with pytest.raises(
        ValueError, match=r"Blocks: Q4_0: data must be uint8 and its last dim a multiple of 18, .* \[17\]"
    ):
        Blocks(torch.zeros(17, dtype=torch.uint8), FORMATS["Q4_0"])
