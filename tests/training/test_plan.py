"""Plans that cannot be are refused, in the words of the equation that does not hold, and with its numbers."""

import re
from dataclasses import replace

import pytest
import torch

import tinydist
from tinydist.attention.decoder import Decoder, DecoderConfig
from tinydist.model import GPT, GPTConfig
from tinydist.training import Plan, parallelize

GPT_4 = GPTConfig(layers=4, heads=4, dim=16, context=8)


@pytest.mark.parametrize(
    "choices, words",
    [
        (dict(dp=4, zero=1, replicate=3), "dp (4) must be divisible by replicate (3)"),
        (dict(dp=4, replicate=2), "ZeRO 0 has no shards, so replicate (2) must equal dp (4)"),
        (dict(pp=2, chunks=2), "1f1b has one stage a rank, but chunks(2): that is for interleaved"),
        (dict(schedule="interleaved", chunks=2), "interleaved goes around in a loop of 2 or more ranks, but pp(1) = 1"),
        (dict(pp=2, schedule="bfs"), "bfs needs 2 or more stages a rank, but chunks(1) = 1"),
        (dict(pp=2, layers=(1, 2, 1)), "3 layers, but pp(2) x chunks(1) = 2 stages"),
        (dict(pp=2, microbatches=5, chunks=2, schedule="interleaved"), "5 // 2 = 2 does not divide 5"),
        (dict(pp=0), "pp must be an integer >= 1, got 0"),
        (dict(zero=4), "zero must be an integer from 0 to 3, got 4"),
        (dict(schedule="ZB-H1"), "schedule must be one of gpipe, 1f1b, interleaved, bfs, got 'ZB-H1'"),
        (dict(sequence="whole"), "sequence must be one of save, regather, overlap or None, got 'whole'"),
        (dict(recompute="all"), "recompute must be one of none, selective, full, got 'all'"),
        (dict(precision="fp8"), "precision must be one of fp32, bf16, fp16, got 'fp8'"),
        (dict(max_norm=0), "max_norm must be a number > 0 or None, got 0"),
        (dict(layers=(0, 4)), "layers must be a non-empty list, each item an integer >= 1 or None, got (0, 4)"),
    ],
    ids=str,
)
def test_a_plan_that_cannot_be(choices, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        Plan(**choices)


def refused(plan, ranks=None, make=lambda: GPT(GPT_4), rows=4, length=8):
    def program():
        engine = parallelize(make(), plan)
        tokens = rows and torch.zeros(rows, length, dtype=torch.long)
        engine.step(tokens, tokens)

    with pytest.raises(ValueError) as caught:
        tinydist.launch(program, ranks or plan.ranks, observe=False)
    return str(caught.value)


def grouped_by_3():
    return Decoder(DecoderConfig(heads=12, kv_heads=3, dim=48))


@pytest.mark.parametrize(
    "plan, how, words",
    [
        (Plan(2, 4, 2), dict(ranks=8), "make_mesh: pp(2) x dp(4) x tp(2) = 16 ranks, but the world has 8"),
        (Plan(pp=3, chunks=2, schedule="interleaved"), {}, "pp(3) x chunks(2) = 6 stages, but 4 blocks"),
        (Plan(pp=2, layers=(1, 2)), {}, "layers 1 + 2 = 3, but the model has 4 blocks"),
        (Plan(tp=8), {}, "4 heads on 8 ranks: ranks have as many each"),
        (Plan(tp=2), dict(make=grouped_by_3), "3 key heads on 2 ranks: neither divides the other"),
        (Plan(microbatches=3), {}, "takes tokens or targets [B/dp, T], B/dp rows in 3 microbatches, got [4, 8]"),
        (Plan(), dict(rows=None), "takes tokens or targets [B/dp, T], B/dp rows in 1 microbatches, got None"),
        (Plan(), dict(make=lambda: torch.nn.Linear(2, 2)), "model must be a GPT, with embedding, blocks, norm, head"),
        (Plan(tp=2, sequence="save"), dict(length=7), "the sequence length (7) must be divisible by tp (2)"),
    ],
    ids=lambda each: "" if isinstance(each, dict) else str(each),  # functions in it have addresses
)
def test_a_plan_that_does_not_suit_the_world_the_model_or_the_batch(plan, how, words):
    assert words in refused(plan, **how)


def test_a_mesh_of_other_sizes_is_refused():
    def program():
        mesh = torch.distributed.init_device_mesh("cpu", (2, 1), mesh_dim_names=("shard", "tp"))
        parallelize(GPT(GPT_4), Plan(dp=2), mesh=mesh)

    words = "the mesh must have the axes pp(1) x replicate(2) x shard(1) x tp(1), but has shard(2) x tp(1)"
    with pytest.raises(ValueError, match=re.escape(words)):
        tinydist.launch(program, 2, observe=False)


def test_a_mesh_is_written_as_text():
    assert Plan.parse("dp=2, pp=2,tp=2", zero=1) == Plan(2, 2, 2, zero=1)
    assert Plan.parse("") == Plan()
    for wrong in ("dp", "dp=x", "dp=2,dp=2", "ep=2", "dp=-1"):
        with pytest.raises(ValueError, match="a mesh is written dp=2,pp=2,tp=2, of pp, dp, tp, replicate, got"):
            Plan.parse(wrong)


def test_what_follows_from_a_plan():
    plan = Plan(3, 4, 2, zero=1, replicate=2)
    assert (plan.ranks, plan.replicas, plan.shard, plan.stages) == (24, 2, 2, 3)
    assert (replace(plan, replicate=None).shard, Plan(dp=4).shard, Plan(dp=4).replicas) == (4, 1, 4)
    assert [Plan(zero=zero).reduces_each for zero in range(4)] == [False, False, True, True]
    assert Plan(pp=3).sizes(7) == [4, 2, 3] and Plan(pp=2, layers=(1, 3)).sizes(4) == [2, 4]


@pytest.mark.parametrize(
    "chosen, words",
    [
        (dict(dp=2), r"offload moves shards, of which ZeRO 0 has none: zero must be 1, 2 or 3"),
        (dict(pp=2, zero=1), r"offload takes gradients from where stages add up tied ones, so pp\(2\) must be 1"),
    ],
)
def test_offload_has_its_rules(chosen, words):
    with pytest.raises(ValueError, match=rf"^Plan: {words}"):
        Plan(offload=True, **chosen)
