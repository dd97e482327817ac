"""7.5 billion parameters on 32 ranks, by the ledger and the clock, with fake tensors: what a rank holds at the peak of a
step, and how long that takes.
"""

from functools import partial

import pytest
import torch

import tinydist
from tinydist.hardware import find_cluster
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
    return sum(bucket.whole.numel() for zero in engine.zero.values() for bucket in zero.buckets)


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
        (WIDE, 1, lambda s: 2 + 4 + 12 / s),
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
    assert memory.peak_between(("step", 1)) < 80e9
