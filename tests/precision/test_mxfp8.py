"""FP8 by scales of blocks: the rule of the scale, which way it is rounded, and what blocks know of one another."""

import math

import pytest
import torch
from hypothesis import given
from precision.eight_bits import BOTH, down, error, numbers, randoms

from tinydist.precision import fp8, mxfp8, round_to


@pytest.mark.parametrize("rounding", ["up", "down"])
@BOTH
@given(drawn=numbers)
def test_a_scale_is_the_power_of_two_that_the_rule_says(format, rounding, drawn):
    """Down, as the specification has it: amax / scale is from 2^8 (e4m3) to below 2^9. Up: nothing is cut."""
    x = torch.tensor(drawn)
    values, scale = mxfp8.quantize(x, format, rounding)
    amax, s = x.abs().max().double().item(), scale.double().item()
    assert values.dtype == format.dtype and scale.dtype == torch.float8_e8m0fnu and math.frexp(s)[0] == 0.5
    if amax > 2.0**-100:
        highest = 2.0 ** math.floor(math.log2(format.largest))
        if rounding == "down":
            assert highest <= amax / s < 2 * highest
        else:
            assert format.largest / 2 < amax / s <= format.largest * (1 + 2**-23)
    cut = (x / scale.float()).clamp(-format.largest, format.largest)
    assert torch.equal(values.float(), round_to(cut, format))


def test_rounded_down_the_largest_number_of_a_block_is_cut():
    x = torch.ones(32)
    x[0] = 511.0
    assert down(x).dequantize()[0] == 448 and mxfp8.quantize(x).dequantize()[0] == 512
    assert [down(x).scale.float().item(), mxfp8.quantize(x).scale.float().item()] == [1, 2]


def test_the_ends_of_e8m0():
    x = torch.tensor([0.0, 2.0**-140, 2.0**127, math.inf, math.nan]).repeat_interleave(32)
    values, scale = mxfp8.quantize(x)
    assert scale.float()[:3].tolist() == [1, 2.0**-127, 2.0**119]
    found = fp8.Scaled(values, scale).dequantize().view(5, 32)
    assert (found[0] == 0).all() and (found[2] == 2.0**127).all() and found[3:].isnan().all()


def test_blocks_are_of_the_last_dim_and_know_nothing_of_one_another():
    x = randoms(3, 4, 96) * torch.logspace(-3, 3, 12).view(3, 4, 1)
    whole = mxfp8.quantize(x)
    assert whole.scale.shape == (3, 4, 3)
    for row in range(3):
        for block in range(3):
            there = row, slice(None), slice(32 * block, 32 * block + 32)
            assert torch.equal(mxfp8.quantize(x[there]).dequantize(), whole.dequantize()[there])


def test_bits_of_a_number():
    x = randoms(64, 64)
    assert 8 * fp8.quantize(x).nbytes / x.numel() == 8 + 32 / x.numel()
    assert 8 * mxfp8.quantize(x).nbytes / x.numel() == 8.25


def test_up_loses_less_than_down():
    x = randoms(256, 256)
    assert error(mxfp8.quantize(x).dequantize(), x) < 0.95 * error(down(x).dequantize(), x)
