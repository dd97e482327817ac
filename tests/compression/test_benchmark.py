"""What the benchmark says that each method sends is what it sends."""

from copy import deepcopy
from functools import partial

import pytest

import tinydist
from benchmarks import fewer_bytes
from tinydist.model import GPT, GPTConfig

STEPS = 10
ALIKE = {
    "sign, nothing kept",
    "1-bit Adam, frozen after 3 %",
    "1-bit Adam, never frozen",
    "DiLoCo, H = 50",
}  # as others, but for a number


@pytest.mark.parametrize("method", sorted(fewer_bytes.METHODS.keys() - ALIKE))
def test_bytes_of_a_method_are_those_of_its_formula(method, monkeypatch):
    small = GPT(GPTConfig(context=fewer_bytes.LENGTH, layers=0, heads=1, dim=16))
    monkeypatch.setattr(fewer_bytes, "make_model", lambda: deepcopy(small))
    run = tinydist.launch(partial(fewer_bytes.train, method, 0, STEPS), fewer_bytes.RANKS)
    assert sum(run.between("begin", "end").traffic[0]) == fewer_bytes.sent(method, STEPS)


@pytest.mark.parametrize("network", fewer_bytes.ALL_REDUCE)
@pytest.mark.parametrize("method", ["PowerSGD, rank 2", "top 1 %", "DiLoCo, H = 50"])
def test_steps_fit_into_the_time_of_all_gradients(method, network):
    steps = fewer_bytes.steps_within(method, 150, network)
    assert fewer_bytes.seconds(method, steps, network) <= 150 < fewer_bytes.seconds(method, steps + 1, network)
    assert fewer_bytes.seconds("all gradients", 150, network) == pytest.approx(150)
