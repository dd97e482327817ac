"""Rounding: torch's casts, bit for bit; and in the mean, the number itself."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinydist.precision import FORMATS, Format, round_to

TORCHS = [each for each in FORMATS.values() if each.dtype]
FP4 = Format("fp4 e2m1", 2, 1, "none")

each_of_torchs = pytest.mark.parametrize("format", TORCHS, ids=str)


def assert_same_bits(ours, theirs):
    """NaN is NaN, whatever its bits."""
    assert ours.dtype == theirs.dtype == torch.float32
    assert torch.equal(ours.isnan(), theirs.isnan())
    numbers = ~theirs.isnan()
    assert torch.equal(ours[numbers].view(torch.int32), theirs[numbers].view(torch.int32))


def every_number_of(format):
    integer = torch.uint8 if format.nbytes == 1 else torch.int16
    return torch.arange(2**format.bits).to(integer).view(format.dtype).float()


def random_bits(count, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**31), 2**31, (count,), generator=draw).int().view(torch.float32)


@pytest.mark.parametrize("format", [each for each in TORCHS if each.nbytes < 4], ids=str)
def test_every_number_every_tie_and_what_is_next_to_them_is_torchs_cast(format):
    numbers = every_number_of(format)
    finite = numbers[numbers.isfinite()].double().unique()
    beyond = torch.tensor([format.largest + 2.0 ** math.floor(math.log2(format.largest)) * format.epsilon])
    ladder = torch.cat([-beyond.double(), finite, beyond.double()])
    ties = ((ladder[:-1] + ladder[1:]) / 2).float()
    for x in (numbers, ties):
        for each in (x, x.nextafter(torch.tensor(math.inf)), x.nextafter(torch.tensor(-math.inf))):
            assert_same_bits(round_to(each, format), each.to(format.dtype).float())
    assert_same_bits(round_to(numbers, format), torch.where(numbers.isinf(), math.inf * numbers.sign(), numbers))


@each_of_torchs
def test_any_float32_is_torchs_cast(format):
    x = random_bits(1_000_000)
    assert_same_bits(round_to(x, format), x.to(format.dtype).float())


@each_of_torchs
def test_zeros_infinities_nan_and_the_ends_of_float32(format):
    limits = torch.finfo(torch.float32)
    ends = [0.0, math.inf, math.nan, limits.max, limits.tiny, limits.smallest_normal / 2, 2.0**-149]
    x = torch.tensor([sign * end for end in ends for sign in (1, -1)])
    assert_same_bits(round_to(x, format), x.to(format.dtype).float())


def test_tf32_has_the_range_of_fp32_and_the_steps_of_fp16():
    x = random_bits(100_000)
    within = x[(x.abs() > 2.0**-14) & (x.abs() < 65000)]
    assert_same_bits(round_to(within, "tf32"), within.half().float())
    exact = (x.view(torch.int32) & ~0x1FFF).view(torch.float32)  # no more than 10 bits of mantissa
    assert_same_bits(round_to(exact, "tf32"), exact)


def test_a_format_of_ones_own():
    x = torch.tensor([0.25, 0.26, 0.75, 2.5, 3.5, 5.0, 7.0, 1e9, math.inf])
    assert round_to(x, FP4).tolist() == [0, 0.5, 1, 2, 4, 4, 6, 6, 6]
    assert round_to(-x, FP4).tolist() == [0, -0.5, -1, -2, -4, -4, -6, -6, -6]


@given(
    st.integers(2, 8),
    st.integers(1, 23),
    st.sampled_from(["inf and nan", "nan", "none"]),
    st.floats(width=32, allow_nan=False),
    st.sampled_from(["nearest", "stochastic"]),
)
def test_what_is_rounded_stays_and_is_at_most_a_step_away(exponent_bits, mantissa_bits, specials, number, mode):
    if exponent_bits == 8:
        specials = "inf and nan"  # float32 has no more
    format, x = Format("any", exponent_bits, mantissa_bits, specials), torch.tensor(number)
    once = round_to(x, format, mode)
    assert_same_bits(round_to(once, format, mode), once)
    if abs(number) <= format.largest:
        step = max(abs(number) * format.epsilon, format.smallest_subnormal)
        assert abs(once.item() - number) <= (step / 2 if mode == "nearest" else step)
    else:
        assert abs(once.item()) in (format.largest, format.overflow)


# Stochastic.


@given(st.floats(width=32, min_value=-500, max_value=500), st.sampled_from(list(FORMATS.values())))
def test_stochastic_takes_one_of_the_two_neighbors(number, format):
    x = torch.full((64,), number)
    rounded = round_to(x, format, "stochastic", torch.Generator().manual_seed(0))
    assert len(rounded.unique()) <= 2
    nearest = round_to(x[:1], format)
    if nearest == x[0]:
        assert_same_bits(rounded, x)  # a number of the format stays
    elif len(rounded.unique()) == 2:
        assert rounded.min() < x[0] < rounded.max()
        assert nearest in rounded


@pytest.mark.parametrize("number", [1 + 0.3 * 2**-7, -3.001, 1e-3, 2.0**-135 + 2.0**-140, 300.123])
def test_the_expectation_is_the_number(number):
    count = 100_000
    x = torch.full((count,), number)
    rounded = round_to(x, "bf16", "stochastic", torch.Generator().manual_seed(1)).double()
    low, high = rounded.min().item(), rounded.max().item()
    deviation = math.sqrt((x[0].item() - low) * (high - x[0].item()) / count)  # of the mean
    assert high > low
    assert abs(rounded.mean().item() - x[0].item()) < 4 * deviation
    assert abs(round_to(x, "bf16").double().mean().item() - x[0].item()) > 8 * deviation  # nearest: always the same


def test_small_updates_add_up_stochastically_and_are_lost_to_nearest():
    draw, update = torch.Generator().manual_seed(0), 2.0**-10  # of a weight of 1: a fourth of half a step, in bf16
    nearest, stochastic = torch.ones(1000), torch.ones(1000)
    for _ in range(256):
        nearest = round_to(nearest + update, "bf16")
        stochastic = round_to(stochastic + update, "bf16", "stochastic", draw)
    assert torch.equal(nearest, torch.ones(1000))
    assert abs(stochastic.mean().item() - 1.25) < 0.01


def test_beyond_the_largest_number_stochastic_is_nearest():
    x = torch.tensor([65504.0, 65519, 65521, 1e9]).repeat(100, 1)
    rounded = round_to(x, "fp16", "stochastic", torch.Generator().manual_seed(0))
    assert rounded.unique(dim=0).tolist() == [[65504, 65504, math.inf, math.inf]]


def test_the_generator_decides():
    x = torch.linspace(0, 1, 1000)
    first, again = (round_to(x, "bf16", "stochastic", torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, round_to(x, "bf16", "stochastic", torch.Generator().manual_seed(4)))


@pytest.mark.parametrize("mode", ["nearest", "stochastic"])
def test_shapes_are_kept_and_no_gradient_passes(mode):
    for shape in [(), (0,), (2, 3, 4)]:
        x = torch.ones(shape, requires_grad=True)
        rounded = round_to(x, "fp16", mode)
        assert rounded.shape == shape and not rounded.requires_grad
    x = torch.randn(4, 6).t()[::2]
    assert_same_bits(round_to(x, "fp16"), x.half().float())


def test_errors():
    x = torch.ones(3)
    with pytest.raises(TypeError, match=r"round_to: input must be float32, got torch\.float16"):
        round_to(x.half(), "bf16")
    with pytest.raises(ValueError, match="mode must be 'nearest' or 'stochastic', got 'up'"):
        round_to(x, "bf16", "up")
    for wide in (Format("mine", 9, 3), Format("mine", 4, 24), Format("mine", 8, 3, "none")):
        with pytest.raises(ValueError, match=r"mine has \d exponent and \d+ mantissa bits; the result is held in"):
            round_to(x, wide)
    with pytest.raises(ValueError, match="fp4 e2m1 has no NaN, but 1 elements are NaN"):
        round_to(torch.tensor([1.0, math.nan]), FP4)
