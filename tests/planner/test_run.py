"""What a run costs, and what failures do."""

import pytest

from tinydist.hardware import find_cluster
from tinydist.planner import Plan, RunCost, daly, evaluate, find_model, goodput, young

ONE = evaluate(
    find_model("GPT-2"), Plan(dp=8, microbatch=4, microbatches=2, precision="bf16"), find_cluster("A100 node")
)


def test_a_run_adds_up():
    run = RunCost(ONE, tokens=1e9, price=2.0, watts=700, goodput=0.8)
    assert run.steps == 1e9 / (8 * 4 * 2 * 1024)
    assert run.seconds == pytest.approx(run.steps * ONE.seconds / 0.8)
    assert run.gpu_hours == pytest.approx(8 * run.seconds / 3600) and run.days == pytest.approx(run.seconds / 86400)
    assert run.cost == pytest.approx(2 * run.gpu_hours)
    assert run.energy == pytest.approx(700 * 8 * run.seconds)
    assert "1e+09 tokens: " in str(run) and "MWh" in str(run)


def lost(interval, C, M):
    """By definition: checkpoints, and on the mean half of what is between them, by each failure."""
    return C / interval + interval / (2 * M)


@pytest.mark.parametrize("C, M", [(60, 3 * 3600), (600, 24 * 3600), (5, 300)])
def test_youngs_interval_loses_least(C, M):
    best = young(C, M)
    assert all(lost(best, C, M) <= lost(other * best, C, M) for other in (0.5, 0.9, 1.1, 2))


def test_daly_is_young_where_checkpoints_are_short_and_not_where_they_are_long():
    assert daly(1, 1e6) == pytest.approx(young(1, 1e6), rel=0.001)
    assert daly(900, 3600) < young(900, 3600)
    assert daly(3600, 1000) == 1000  # a checkpoint takes longer than half of the time between failures


def test_llama_3s_failures():
    """419 in 54 days of 16,384 GPUs (The Llama 3 Herd of Models, section 3.3.4): one every 3 hours."""
    between = 54 * 86400 / 419
    assert between == pytest.approx(3.1 * 3600, rel=0.01)
    assert goodput(30, between, restart=600) > 0.88 > 0.75 > goodput(600, between, restart=600)


def test_goodput_is_best_at_dalys_interval():
    best = goodput(60, 10_000)
    assert best == pytest.approx(goodput(60, 10_000, interval=daly(60, 10_000)))
    assert best > max(goodput(60, 10_000, interval=interval) for interval in (300, 5000))


def test_rules():
    with pytest.raises(ValueError, match="young: checkpoint must be a finite number > 0, got 0"):
        young(0, 100)
    with pytest.raises(TypeError, match="RunCost: candidate must be a Candidate, got None"):
        RunCost(None, 1e9)
