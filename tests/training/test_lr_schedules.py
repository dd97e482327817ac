"""Learning rates: those of torch's schedulers, where it has them; what all keep."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch.optim import lr_scheduler as torchs

from tinydist.training.lr_schedules import LR_SCHEDULES, constant, cosine, linear, wsd

PEAK, STEPS, WARMUP, FINAL = 0.3, 24, 5, 0.03
FALLING = 6  # of wsd
AFTER = {  # those that follow warm-up, and where each but the last ends
    constant: lambda optimizer, steps: ([torchs.ConstantLR(optimizer, 1.0)], []),
    linear: lambda optimizer, steps: ([torchs.LinearLR(optimizer, 1.0, FINAL / PEAK, steps)], []),
    cosine: lambda optimizer, steps: ([torchs.CosineAnnealingLR(optimizer, steps, FINAL)], []),
    wsd: lambda optimizer, steps: (
        [torchs.ConstantLR(optimizer, 1.0), torchs.LinearLR(optimizer, 1.0, FINAL / PEAK, FALLING)],
        [STEPS - FALLING],
    ),
}
OPTIONS = {
    constant: {},
    linear: {"final": FINAL},
    cosine: {"final": FINAL},
    wsd: {"final": FINAL, "decay": FALLING / STEPS},
}


def rates_of_torch(after, warmup):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=PEAK)
    schedulers, ends = after(optimizer, STEPS - warmup)
    if warmup:
        schedulers.insert(0, torchs.LinearLR(optimizer, 1 / (warmup + 1), 1.0, warmup))
        ends.insert(0, warmup)
    then = torchs.SequentialLR(optimizer, schedulers, ends)
    found = []
    for _ in range(STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        then.step()
    return found


@pytest.mark.filterwarnings("ignore")  # SequentialLR calls step() of others with an epoch, which torch advises against
@pytest.mark.parametrize("warmup", [0, WARMUP])
@pytest.mark.parametrize("rate", AFTER)
def test_the_rates_are_those_of_torchs_schedulers(rate, warmup):
    ours = rate(PEAK, STEPS, warmup, **OPTIONS[rate])
    assert [ours(step) for step in range(STEPS)] == pytest.approx(rates_of_torch(AFTER[rate], warmup))


@given(some.sampled_from(sorted(LR_SCHEDULES)), some.integers(1, 200), some.data())
def test_a_rate_rises_to_its_peak_and_never_again(name, steps, data):
    warmup = data.draw(some.integers(0, steps - 1))
    rate = LR_SCHEDULES[name](1.0, steps, warmup)
    found = [rate(step) for step in range(steps + 3)]
    assert found[: warmup + 1] == pytest.approx([(step + 1) / (warmup + 1) for step in range(warmup + 1)])
    assert all(before >= after for before, after in zip(found[warmup:], found[warmup + 1 :]))
    assert all(math.isclose(late, 1.0 if name == "constant" else 0.0, abs_tol=1e-12) for late in found[steps:])


@pytest.mark.parametrize("rate", [linear, cosine, wsd])
def test_a_warm_up_as_long_as_the_run_is_refused(rate):
    with pytest.raises(ValueError, match=rf"^{rate.__name__}: warmup_steps \(5\) must be < steps \(5\)$"):
        rate(1.0, 5, warmup_steps=5)
