"""7.5 billion parameters on 32 ranks, with fake tensors: what a rank holds, by the ledger; how long a step takes."""

from dataclasses import replace
from functools import partial

import pytest
import torch

import tinydist
from tinydist.hardware.cluster import H100_POD
from tinydist.model import GPT, GPTConfig
from tinydist.training import Plan, parallelize

# Few and wide blocks: as many parameters, and a ninth of the operators.
WIDE = GPTConfig(vocab_size=51200, context=2048, layers=4, heads=96, dim=12288)
DEEP = GPTConfig(vocab_size=51200, context=2048, layers=36, heads=32, dim=4096)
WORLD, SEQUENCES = 32, 16  # of the global batch


def two_steps(config, plan):
    torch.set_default_dtype(torch.bfloat16)
    engine = parallelize(GPT(config), plan, lr=1e-4)
    tokens = torch.zeros(SEQUENCES // plan.dp, config.context, dtype=torch.long)
    for step in range(2):
        with tinydist.region("step"):
            engine.forward_backward(tokens, tokens)
            tinydist.mark(f"gradients {step}")
            engine.optimizer_step()
    return sum(bucket.unsharded.numel() for zero in engine.zero.values() for bucket in zero.buckets)


def launched(config, plan, only):
    return tinydist.launch(partial(two_steps, config, plan), WORLD, fake=True, only=only, cluster="H100 pod")


def numbers(config, plan):
    """Of the first stage: its blocks, the table, the positions."""
    D = config.dim
    blocks = config.layers // plan.pp * ((12 * D * D + 7 * D) / plan.tp + 6 * D)
    return blocks + config.vocab_size * D / plan.tp + config.context * D


exhaustive = pytest.mark.exhaustive
PLAN = Plan(4, 2, 4, microbatches=8, precision="bf16", max_norm=1.0)


@pytest.mark.parametrize(
    "config, zero, states",
    [
        pytest.param(WIDE, 1, lambda s: 2 + 4 + 12 / s, marks=exhaustive),
        pytest.param(WIDE, 2, lambda s: 2 + 16 / s, marks=exhaustive),
        (WIDE, 3, lambda s: 18 / s),
        pytest.param(DEEP, 1, lambda s: 2 + 4 + 12 / s, marks=exhaustive),
        pytest.param(DEEP, 3, lambda s: 18 / s, marks=exhaustive),
    ],
)
def test_at_rest_a_rank_holds_its_part_of_a_stage_in_the_bytes_of_zero(config, zero, states):
    """Weights in 16 bits; gradients, masters and moments in 32, as many of them in shards as the stage says."""
    plan = Plan(4, 2, 4, zero=zero, microbatches=1, precision="bf16", max_norm=1.0)
    run = launched(config, plan, only=[0])
    N = numbers(config, plan)
    assert run.results[0] == pytest.approx(N, rel=1e-3)
    memory = run.memory[0]
    assert sum(memory.at("gradients 1").values()) == pytest.approx(states(plan.shard) * N, rel=0.02)


def test_a_rank_keeps_nothing_of_other_stages():
    """Of 4 stages, the largest part of the model is somebody else's; the table is on two of them."""
    table, positions = WIDE.vocab_size * WIDE.dim / PLAN.tp, WIDE.context * WIDE.dim
    last = numbers(WIDE, PLAN) - positions
    run = launched(WIDE, replace(PLAN, microbatches=1), only=[8, 24])
    for rank, N in ((8, last - table), (24, last)):
        assert run.memory[rank].at("gradients 1")["parameters"] == pytest.approx(2 * N, rel=0.02)


@exhaustive
def test_more_microbatches_make_a_step_faster_as_the_bubble_is_smaller():
    """Of P - 1 microbatches' time: with 4 stages, (4 + 3) / 4 of what it would take without, with 8 (8 + 3) / 8."""

    def seconds(microbatches):
        run = launched(WIDE, replace(PLAN, microbatches=microbatches), only=[0, 8, 16, 24])
        return run.between(("step", 1)).seconds

    computing = 6 * 7.5e9 * SEQUENCES * WIDE.context / WORLD / H100_POD.device.peak_of("bfloat16")
    assert computing < seconds(8) < seconds(4)
