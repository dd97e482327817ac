"""The benchmark of chapter 19: what it says that a run has spent is what the run has spent."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import less_data

FEW = 2 * less_data.ROWS * less_data.CONFIG.context  # tokens


@pytest.fixture
def counted(monkeypatch):
    """Tokens and FLOPs of all steps, and how many there were; nothing is evaluated."""
    spent = {"tokens": 0, "flops": 0, "steps": 0}
    take = less_data.take

    def counting(model, optimizer, tokens, targets):
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            take(model, optimizer, tokens, targets)
        more = {"tokens": tokens.numel(), "flops": counter.get_total_flops(), "steps": 1}
        for name, number in more.items():
            spent[name] += number

    monkeypatch.setattr(less_data, "take", counting)
    monkeypatch.setattr(less_data, "loss_of", lambda model: 0.0)
    monkeypatch.setattr(less_data, "seconds_of", lambda shape: 1.0)
    monkeypatch.setitem(less_data.BUDGETS, "tokens", FEW)
    return spent


@pytest.mark.parametrize("method", less_data.METHODS)
def test_tokens_and_flops_of_a_run_are_those_that_are_counted(method, counted):
    row = less_data.train(method, "cosine", 1e-3, 0)
    assert counted == {"tokens": FEW, "flops": int(row["flops"]), "steps": row["steps"]}
    assert row["tokens"] == str(FEW)


def test_a_curriculum_and_its_control_have_the_same_tokens_in_each_step():
    grows, ramps = (less_data.METHODS[name](None) for name in ("curriculum, linear", "batch ramp"))
    parts = torch.linspace(0, 1, 50).tolist()
    assert [grows(part).tokens for part in parts] == [ramps(part).tokens for part in parts]


def test_a_longer_step_takes_longer():
    short, whole = less_data.Shape(rows=2, length=8, kept=8), less_data.Shape(rows=2)
    assert 0 < short.seconds < whole.seconds
