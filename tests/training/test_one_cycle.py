"""1Cycle: torch's OneCycleLR to the last digit, and the laws of a cycle."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from tinydist.training.one_cycle import one_cycle, one_cycle_momentum


@pytest.mark.parametrize("shape", ["cos", "linear"])
@pytest.mark.parametrize("steps, rise, start, end", [(20, 0.3, 25.0, 1e4), (7, 0.5, 10.0, 100.0), (33, 0.21, 3.0, 7.0)])
def test_rates_and_momenta_are_torchs_to_the_last_digit(steps, rise, start, end, shape):
    optimizer = torch.optim.Adam([torch.zeros(1)], lr=1.0)
    options = dict(pct_start=rise, anneal_strategy=shape, div_factor=start, final_div_factor=end)
    theirs = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.7, steps, **options)
    rate, momentum = one_cycle(0.7, steps, rise, start, end, shape), one_cycle_momentum(steps, rise=rise, shape=shape)
    for step in range(steps):
        (group,) = optimizer.param_groups
        assert (group["lr"], group["betas"][0]) == (rate(step), momentum(step)), step
        optimizer.step()
        if step + 1 < steps:  # torch raises after the last one
            theirs.step()


@given(some.integers(5, 300), some.floats(0.25, 0.7), some.sampled_from(["cos", "linear"]))
def test_the_rate_rises_once_and_falls_once_and_momentum_goes_the_other_way(steps, rise, shape):
    rate, momentum = one_cycle(1.0, steps, rise, shape=shape), one_cycle_momentum(steps, rise=rise, shape=shape)
    rates, momenta = ([each(step) for step in range(steps + 3)] for each in (rate, momentum))
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1]) and rates[top:] == sorted(rates[top:], reverse=True)
    assert abs(momenta.index(min(momenta)) - top) <= 1  # of two steps that are as far from the top, rounding decides
    assert rates[0] == pytest.approx(1 / 25) and rates[steps - 1 :] == pytest.approx([1 / 25e4] * 4)


def test_cycles_that_would_go_the_other_way():
    with pytest.raises(ValueError, match=r"^one_cycle: start and end divide the peak, so they must be >= 1, got 0.04"):
        one_cycle(1.0, 10, start=0.04)
    with pytest.raises(ValueError, match=r"^one_cycle_momentum: least \(0.9\) must be <= most \(0.5\)$"):
        one_cycle_momentum(10, most=0.5, least=0.9)


def test_a_rise_of_less_than_a_step_is_refused():
    with pytest.raises(ValueError, match=r"^one_cycle: rise x steps = 0.1 x 10 must be > 1, and < steps$"):
        one_cycle(1.0, 10, rise=0.1)
