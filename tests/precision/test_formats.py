"""Formats: torch's own limits, and every bit pattern."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinydist.precision import FORMATS, Format, decode_bits, encode_bits, find_format, round_to

TORCHS = [each for each in FORMATS.values() if each.dtype]
SMALL = {"fp16": torch.int16, "bf16": torch.int16, "fp8 e4m3": torch.uint8, "fp8 e5m2": torch.uint8}

each_of_torchs = pytest.mark.parametrize("format", TORCHS, ids=str)


@each_of_torchs
def test_limits_are_torchs(format):
    limits = torch.finfo(format.dtype)
    assert format.bits == limits.bits == 8 * format.nbytes
    assert (format.largest, format.smallest_normal, format.epsilon) == (limits.max, limits.tiny, limits.eps)


@each_of_torchs
def test_the_smallest_number_above_zero_is_pattern_one(format):
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[format.nbytes]
    assert torch.tensor([1], dtype=integer).view(format.dtype).double().item() == format.smallest_subnormal


def test_numbers_to_know():
    e4m3, fp16, tf32 = (FORMATS[name] for name in ("fp8 e4m3", "fp16", "tf32"))
    assert (e4m3.largest, e4m3.smallest_subnormal) == (448, 2**-9)
    assert (fp16.largest, fp16.smallest_normal, fp16.smallest_subnormal) == (65504, 2**-14, 2**-24)
    assert (tf32.bits, tf32.nbytes, tf32.epsilon) == (19, 4, fp16.epsilon)
    assert all(each.source for each in FORMATS.values())


@pytest.mark.parametrize("name", SMALL)
def test_every_bit_pattern_there_and_back(name):
    format = FORMATS[name]
    patterns = torch.arange(2**format.bits).to(SMALL[name])
    for pattern, number in enumerate(patterns.view(format.dtype).double().tolist()):
        bits = encode_bits(number, format)
        if math.isnan(number):
            assert math.isnan(bits.value)
        else:
            assert str(bits).replace(" ", "") == f"{pattern:0{format.bits}b}"
            assert bits.value == number and math.copysign(1, bits.value) == math.copysign(1, number)


@given(st.floats(width=32, allow_nan=False), st.sampled_from([*FORMATS.values()]))
def test_the_bits_of_any_number_are_those_of_the_nearest(number, format):
    assert encode_bits(number, format).value == round_to(torch.tensor(number), format).item()


def test_bits_to_draw():
    assert encode_bits(0.1, "fp16")[:3] == ("0", "01011", "1001100110")
    assert encode_bits(0.1, "fp16").value == torch.tensor(0.1, dtype=torch.float16).item()
    assert str(encode_bits(-math.inf, "bf16")) == "1 11111111 0000000"
    assert math.isnan(encode_bits(math.nan, "fp8 e4m3").value) and math.isnan(encode_bits(math.nan, "fp32").value)
    assert encode_bits(500, "fp8 e4m3").value == 448


def test_a_format_of_ones_own():
    numbers = [decode_bits("0", f"{k >> 1:02b}", f"{k & 1}", FORMATS["fp4 e2m1"]) for k in range(8)]
    assert numbers == [0, 0.5, 1, 1.5, 2, 3, 4, 6]  # OCP Microscaling Formats 1.0, table 5
    assert (
        FORMATS["fp4 e2m1"].largest,
        FORMATS["fp4 e2m1"].smallest_normal,
        FORMATS["fp4 e2m1"].nbytes,
        FORMATS["fp4 e2m1"].overflow,
    ) == (6, 1, 1, 6)


@pytest.mark.parametrize("which", ["BF16", torch.int8, None, 16])
def test_an_unknown_format(which):
    with pytest.raises(ValueError, match=r"unknown format .*; available: 'fp32', 'tf32', 'bf16', .*dtypes of torch"):
        find_format(which)


def test_a_format_is_found_by_name_and_dtype():
    assert find_format("bf16") is find_format(torch.bfloat16) is find_format(FORMATS["bf16"])


def test_errors_show_the_numbers():
    with pytest.raises(ValueError, match=r"fp16 has 1 \+ 5 \+ 10 bits, got 1 \+ 5 \+ 3"):
        decode_bits("0", "10101", "101", "fp16")
    with pytest.raises(ValueError, match="needs 2 or more exponent bits and 1 or more mantissa bits, got 1 and 2"):
        Format("mine", 1, 2)
    with pytest.raises(ValueError, match=r"specials must be one of .*, got 'inf'"):
        Format("mine", 4, 3, "inf")
    with pytest.raises(ValueError, match="fp4 e2m1 has no NaN"):
        encode_bits(math.nan, FORMATS["fp4 e2m1"])
