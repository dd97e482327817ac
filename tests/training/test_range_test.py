"""The range test: rates, smoothing, and readings of curves whose reading is known."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tinydist.training.range_test import growing, read_range_test, smoothed

RATES = [growing(1e-4, 1.0, 41)(step) for step in range(41)]


def bowl(rate):
    """Of the rate's logarithm: flat at 4, falling around 1e-3, least at 1e-2, 10 at 1e-1 and beyond."""
    place = math.log10(rate)
    return 4 - max(0.0, place + 4) if place <= -2 else 2 + 8 * (place + 2)


def test_rates_grow_by_one_factor():
    assert RATES[0] == 1e-4 and RATES[-1] == pytest.approx(1.0)
    assert [b / a for a, b in pairwise(RATES)] == pytest.approx([10**0.1] * 40)


def test_it_reads_where_the_loss_is_least_and_where_it_breaks():
    found = read_range_test(RATES, [bowl(rate) for rate in RATES], factor=2, kept=0.0)
    assert found.least == pytest.approx(1e-2)
    assert found.breaks == pytest.approx(10**-1.7)  # 2 + 8 x 0.3 is the first above 4
    assert found.steepest < found.least


def test_the_steepest_is_before_the_least():
    losses = [4.0 - 2 / (1 + math.exp(-3 * (i - 15))) + 0.001 * abs(i - 20) for i in range(41)]
    found = read_range_test(RATES, losses, kept=0.0)
    assert found.steepest == RATES[15] and found.least == RATES[20] and found.breaks == math.inf


def test_smoothing_shifts_what_is_read_to_higher_rates():
    losses = [4 - 2 / (1 + math.exp(15 - i)) + 0.01 * max(0, i - 18) for i in range(41)]
    plain, smooth = (read_range_test(RATES, losses, kept=kept) for kept in (0.0, 0.9))
    assert smooth.steepest > plain.steepest and smooth.least > plain.least


def test_a_loss_that_is_not_finite_is_where_it_breaks():
    losses = [4.0 - 0.1 * i for i in range(20)] + [math.nan] * 21
    assert read_range_test(RATES, losses).breaks == RATES[20]
    with pytest.raises(ValueError, match=r"^read_range_test: the loss of step 1 is nan: begin with a lower rate$"):
        read_range_test(RATES, [4.0] + [math.nan] * 40)


@given(some.lists(some.floats(0.1, 10), min_size=1, max_size=20), some.floats(0, 0.99))
def test_a_moving_average_is_a_weighted_mean(losses, kept):
    for number, found in enumerate(smoothed(losses, kept), 1):
        weights = [kept ** (number - 1 - i) for i in range(number)]
        assert found == pytest.approx(sum(w * loss for w, loss in zip(weights, losses)) / sum(weights))


def test_after_the_last_step_the_rate_stays():
    assert growing(1e-3, 1.0, 5)(500) == growing(1e-3, 1.0, 5)(4)


@pytest.mark.parametrize(
    "rates, losses, factor, words",
    [
        (RATES[::-1], [1.0] * 41, 1.5, "rates must increase"),
        (RATES, [1.0] * 41, 1.0, r"factor \(1.0\) must be > 1"),
        (RATES, [-1.0] * 41, 1.5, "the loss must be >= 0 for a factor of it, got -1$"),
    ],
)
def test_what_has_no_reading(rates, losses, factor, words):
    with pytest.raises(ValueError, match=f"^read_range_test: .*{words}"):
        read_range_test(rates, losses, factor)


def test_as_many_rates_as_losses():
    with pytest.raises(
        ValueError, match=r"^read_range_test: rates \(41\) and losses \(40\) must be as many, at least 3$"
    ):
        read_range_test(RATES, [1.0] * 40)
