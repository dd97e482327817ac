"""FP8 by one scale: what is stored, and what an outlier costs."""

import math

import torch
from hypothesis import given
from precision.eight_bits import BOTH, numbers

from tinydist.precision import fp8, mxfp8, round_to


@BOTH
@given(drawn=numbers)
def test_the_largest_becomes_the_largest_and_all_are_rounded_to_the_nearest(format, drawn):
    x = torch.tensor(drawn)
    scaled = fp8.quantize(x, format)
    assert scaled.values.dtype == format.dtype
    assert torch.equal(scaled.values.float(), round_to(x / scaled.scale, format))
    assert scaled.scale == max((x.abs().max() / format.largest).item(), 2.0**-126)
    if x.abs().max() > 2.0**-100:
        assert scaled.values.float().abs().max() == format.largest


def test_nothing_but_zeros_and_an_infinity():
    assert fp8.quantize(torch.zeros(5)).wide().tolist() == [0.0] * 5
    assert fp8.quantize(torch.tensor([1.0, math.inf])).wide().isnan().all()
    assert fp8.quantize(torch.tensor([1.0, math.nan])).wide().isnan().all()


def test_an_outlier_takes_the_small_numbers_of_its_tensor_or_of_its_block():
    x = torch.full((64,), 0.01)
    x[0] = 2.0**14
    assert (fp8.quantize(x).wide()[1:] == 0).all()
    found = mxfp8.quantize(x).wide()
    assert (found[1:32] == 0).all()
    torch.testing.assert_close(found[32:], x[32:], rtol=2**-4, atol=0)
