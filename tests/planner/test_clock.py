"""Seconds of a step by the planner, and by the simulated clock of a fake run of the same plan on the same cluster."""

import pytest
from planner.fake_runs import model_of, planned, run

from tinydist.hardware import find_cluster
from tinydist.model import GPTConfig
from tinydist.planner import Clock, step_time

NODE = find_cluster("A100 node").at(matmul=0.87, memory=0.87, wire=0.78)
PLAIN = GPTConfig(vocab_size=8192, context=1024, layers=2, heads=16, dim=2048)
DROPPED = GPTConfig(vocab_size=8192, context=1024, layers=2, heads=16, dim=2048, dropout=0.1)
exhaustive = pytest.mark.exhaustive


@pytest.mark.parametrize(
    "config, choices",
    [
        (PLAIN, dict()),
        pytest.param(PLAIN, dict(microbatches=2), marks=exhaustive),
        pytest.param(DROPPED, dict(recompute="full"), marks=exhaustive),
        pytest.param(DROPPED, dict(recompute="selective"), marks=exhaustive),
        (PLAIN, dict(tp=2)),
        pytest.param(DROPPED, dict(tp=2, sequence="kept", recompute="selective"), marks=exhaustive),
        pytest.param(PLAIN, dict(dp=4), marks=exhaustive),
        pytest.param(PLAIN, dict(dp=4, zero=1), marks=exhaustive),
    ],
)
def test_a_step_takes_what_the_clock_says(config, choices):
    plan = planned(config, 4, **choices)
    trace = run(config, plan, NODE).trace
    seconds = trace.time("over") - trace.time("step 1")
    assert step_time(model_of(config), plan, NODE, Clock(NODE)).seconds == pytest.approx(seconds, rel=0.03)
