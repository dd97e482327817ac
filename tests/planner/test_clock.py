"""Seconds of a step by the planner, and by the simulated clock of a fake run of the same plan on the same cluster."""

import pytest
from planner.fake_runs import model_of, planned, program_of, run

from tinydist.hardware import TILES, find_cluster
from tinydist.model import GPTConfig
from tinydist.plan import CONTEXT
from tinydist.planner import Clock, step_time

NODE = find_cluster("A100 node").at(matmul=0.87, memory=0.87, wire=0.78)
PLAIN = GPTConfig(vocab_size=8192, context=1024, layers=2, heads=16, dim=2048)
DROPPED = GPTConfig(vocab_size=8192, context=1024, layers=2, heads=16, dim=2048, dropout=0.1)
DEEP = GPTConfig(vocab_size=8192, context=1024, layers=4, heads=16, dim=2048)
LONG = GPTConfig(vocab_size=8192, context=8192, layers=2, heads=16, dim=2048)
FEW = [
    (LONG, 1, dict(cp=4, zero=1)),
    (LONG, 1, dict(cp=4, zero=1, context="gather")),
    (PLAIN, 4, dict()),
    (PLAIN, 4, dict(dp=4, zero=3)),
    (PLAIN, 4, dict(dp=4, zero=1, overlap_param_gather=True)),
]
MANY = [
    (PLAIN, 4, dict(microbatches=2)),
    *[(LONG, 1, dict(cp=cp, zero=zero, context=kind)) for cp, zero in ((2, 0), (4, 3)) for kind in CONTEXT],
    (LONG, 1, dict(cp=2, dp=2, tp=2, zero=3, sequence_parallel="save")),
    (LONG, 1, dict(cp=4, zero=2, recompute="full")),
    (DROPPED, 4, dict(recompute="full")),
    (DROPPED, 4, dict(recompute="selective")),
    (PLAIN, 4, dict(tp=2)),
    (PLAIN, 4, dict(tp=4, sequence_parallel="regather")),
    (DROPPED, 4, dict(tp=2, sequence_parallel="save", recompute="selective")),
    (PLAIN, 4, dict(dp=4)),
    (PLAIN, 4, dict(dp=4, zero=1)),
    (PLAIN, 4, dict(dp=4, zero=2)),
    (PLAIN, 4, dict(dp=4, zero=2, microbatches=2)),
    (PLAIN, 4, dict(dp=4, zero=3, microbatches=2)),
    (PLAIN, 2, dict(dp=2, tp=2, zero=3)),
    (DEEP, 2, dict(dp=8, zero=3, recompute="full")),
    (DEEP, 2, dict(dp=4, tp=2, zero=2, sequence_parallel="save")),
    (PLAIN, 4, dict(dp=4, zero=2, microbatches=2, overlap_param_gather=True)),
    (DEEP, 2, dict(pp=2, dp=2, zero=1, microbatches=4, overlap_param_gather=True)),
    (DEEP, 2, dict(pp=2, microbatches=4)),
    (DEEP, 2, dict(pp=4, microbatches=8)),
    (DEEP, 4, dict(pp=2, microbatches=2, recompute="full")),
    (DEEP, 2, dict(pp=2, tp=2, microbatches=4, sequence_parallel="regather")),
    (DEEP, 2, dict(pp=2, dp=2, zero=1, microbatches=4)),
    (DEEP, 2, dict(pp=2, dp=2, zero=2, microbatches=4)),
    (DEEP, 2, dict(pp=2, dp=2, zero=3, microbatches=2)),
]


def check(config, b, choices, cluster=NODE):
    model = model_of(config)
    plan = planned(b, **choices)
    trace = run(config, model, plan, cluster).trace
    seconds = trace.time("over") - trace.time("step 1")
    assert step_time(model, plan, cluster, program_of(config), Clock(cluster)).seconds == pytest.approx(
        seconds, rel=0.03
    )


@pytest.mark.parametrize("config, b, choices", FEW)
def test_a_step_takes_what_the_clock_says(config, b, choices):
    check(config, b, choices)


def test_products_by_tiles_take_what_the_clock_says():
    check(PLAIN, 4, dict(tp=2), NODE.at(tiles=TILES["A100"]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("config, b, choices", MANY)
def test_a_step_takes_what_the_clock_says_in_many_plans(config, b, choices):
    check(config, b, choices)
