"""Plans that cannot be are refused, in the words of the equation that does not hold, and with its numbers."""

import re
from dataclasses import replace

import pytest
import torch

import tinydist
from tinydist.attention.decoder import Decoder, DecoderConfig
from tinydist.model import GPT, GPTConfig
from tinydist.plan import SEQUENCE_PARALLEL, Plan
from tinydist.planner import Model, check, find_model
from tinydist.planner.shares import layers_of
from tinydist.tensor_parallel.layouts import WAYS
from tinydist.training import parallelize

GPT_4 = GPTConfig(layers=4, heads=4, dim=16, context=8)


@pytest.mark.parametrize(
    "choices, words",
    [
        (dict(dp=4, zero=1, replicate=3), "dp (4) must be divisible by replicate (3)"),
        (dict(dp=4, replicate=2), "ZeRO 0 has no shards, so replicate (2) must equal dp (4)"),
        (dict(dp=4, cp=2, ep=3), "dp (4) x cp (2) must be divisible by ep (3): these ranks share the experts"),
        (dict(dp=4, zero=1, replicate=2, ep=4), "dp / replicate (2) x cp (1) must be divisible by ep (4)"),
        (dict(pp=2, chunks=2), "1f1b has one stage per rank, but chunks(2): that is for interleaved"),
        (dict(schedule="interleaved", chunks=2), "interleaved needs 2 or more pipeline ranks, but pp(1) = 1"),
        (dict(pp=2, schedule="bfs"), "bfs needs 2 or more stages per rank, but chunks(1) = 1"),
        (dict(pp=2, layers=(1, 2, 1)), "3 layers, but pp(2) x chunks(1) = 2 stages"),
        (dict(pp=2, microbatches=5, chunks=2, schedule="interleaved"), "5 // 2 = 2 does not divide 5"),
        (dict(pp=0), "pp must be an integer >= 1, got 0"),
        (dict(zero=4), "zero must be an integer from 0 to 3, got 4"),
        (dict(schedule="ZB-H1"), "schedule must be one of gpipe, 1f1b, interleaved, bfs, got 'ZB-H1'"),
        (dict(sequence_parallel="save"), "sequence_parallel splits tokens over tensor-parallel ranks, but tp = 1"),
        (dict(sequence_parallel="all"), "sequence_parallel must be one of save, regather, overlap or None, got 'all'"),
        (dict(context="gather"), "context='gather' is how context-parallel ranks attend, but cp = 1"),
        (dict(recompute="all"), "recompute must be one of none, selective, per_op, full, got 'all'"),
        (dict(precision="fp8"), "precision must be one of fp32, bf16, fp16, got 'fp8'"),
        (dict(dp=2, overlap_param_gather=True), "after a step: zero must be 1 or 2, got 0"),
        (dict(dp=2, zero=3, overlap_param_gather=True), "after a step: zero must be 1 or 2, got 3"),
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
        (Plan(pp=3, chunks=2, schedule="interleaved"), {}, "pp(3) x chunks(2) = 6 stages, but 4 layers"),
        (Plan(pp=2, layers=(1, 2)), {}, "layers 1 + 2 = 3, but the model has 4 layers"),
        (Plan(tp=8), {}, "num_heads (4) must be divisible by the tensor-parallel degree (8)"),
        (
            Plan(tp=2),
            dict(make=grouped_by_3),
            "num_kv_heads (3) must divide, or be divisible by, the tensor-parallel degree (2)",
        ),
        (
            Plan(microbatches=3),
            {},
            "must be [B/dp, T], B/dp divisible by microbatches (3), got [4, 8]",
        ),
        (Plan(), dict(rows=None), "must be [B/dp, T], B/dp divisible by microbatches (1), got None"),
        (Plan(), dict(make=lambda: torch.nn.Linear(2, 2)), "model must be a GPT, with embedding, blocks, norm, head"),
        (Plan(recompute="per_op"), {}, "parallelize: recompute='per_op' is for the planner: use 'selective' or 'full'"),
        (Plan(dp=2, overlap_comm=False), {}, "parallelize: overlap_comm=False is for the planner"),
        (Plan(tp=2, sequence_parallel="save"), dict(length=7), "the sequence length (7) must be divisible by tp (2)"),
    ],
    ids=lambda each: "" if isinstance(each, dict) else str(each),  # functions in it have addresses
)
def test_a_plan_that_does_not_suit_the_world_the_model_or_the_batch(plan, how, words):
    assert words in refused(plan, **how)


def test_a_mesh_of_other_sizes_is_refused():
    def program():
        mesh = torch.distributed.init_device_mesh("cpu", (2, 1), mesh_dim_names=("shard", "tp"))
        parallelize(GPT(GPT_4), Plan(dp=2), mesh=mesh)

    words = "the mesh must have the axes pp(1) x replicate(2) x shard(1) x cp(1) x tp(1), but has shard(2) x tp(1)"
    with pytest.raises(ValueError, match=re.escape(words)):
        tinydist.launch(program, 2, observe=False)


def test_a_mesh_is_written_as_text():
    assert Plan.parse("dp=2, pp=2,tp=2", zero=1) == Plan(2, 2, 2, zero=1)
    assert Plan.parse("") == Plan()
    for wrong in ("dp", "dp=x", "dp=2,dp=2", "sp=2", "dp=-1"):
        with pytest.raises(ValueError, match="dp=2,pp=2,tp=2 with axes pp, dp, cp, tp, ep, replicate, got"):
            Plan.parse(wrong)


def test_what_follows_from_a_plan():
    plan = Plan(3, 4, 2, zero=1, replicate=2)
    assert (plan.ranks, plan.replicas, plan.shard, plan.stages) == (24, 2, 2, 3)
    assert (replace(plan, replicate=None).shard, Plan(dp=4).shard, Plan(dp=4).replicas) == (4, 1, 4)
    assert [Plan(zero=zero).reduces_each for zero in range(4)] == [False, False, True, True]
    assert Plan(pp=3).stage_layers(7) == [3, 2, 2] and Plan(pp=2, layers=(1, 3)).stage_layers(4) == [1, 3]


@pytest.mark.parametrize("sizes", [{}, dict(zero=1), dict(zero=3), dict(zero=2, replicate=2)], ids=str)
def test_experts_are_shared_by_data_and_context_ranks(sizes):
    """What dense parts and experts have of them: ep x shards x copies, and ep is 1 for dense parts."""
    plan = Plan.parse("dp=8,cp=2,tp=2,ep=4", **sizes)
    assert plan.ranks == 32 and str(plan).startswith("dp 8, cp 2, tp 2, ep 4")
    assert plan.shards * plan.copies == 16 == plan.ep * plan.expert_shards * plan.expert_copies
    assert plan.expert_copies == (plan.copies if plan.zero else 4)
    assert not [*plan.unshared(8)] and [*plan.unshared(6)] == ["experts (6) must be divisible by ep (4)"]
    assert [*plan.unsuited(1, 4, 16)] == ["ep (4) ranks share the experts, but the model has none"]


@pytest.mark.parametrize(
    "chosen, words",
    [
        (dict(dp=2), r"offload moves shards, and ZeRO 0 has none: zero must be 1, 2 or 3"),
        (dict(pp=2, zero=1), r"offload does not support the tied weights of pipelines, so pp\(2\) must be 1"),
    ],
)
def test_offload_has_its_rules(chosen, words):
    with pytest.raises(ValueError, match=rf"^Plan: {words}"):
        Plan(offload=True, **chosen)


GPT_2 = find_model("GPT-2")


@pytest.mark.parametrize(
    "plan, model, words",
    [
        (Plan(tp=8), GPT_2, "heads (12) must be divisible by tp (8)"),
        (Plan(tp=6), find_model("Llama 2 70B"), "heads (64) must be divisible by tp (6)"),
        (Plan(tp=6), Model("", 1, 96, 12, 8, 8, kv_heads=4), "kv_heads (4) must be divisible by tp (6), or tp by"),
        (Plan(tp=4), Model("", 1, 96, 12, 8, 8, inner=250), "the MLP's width (250) must be divisible by tp (4)"),
        (Plan(tp=4, sequence_parallel="save"), Model("", 1, 96, 12, 8, 9), "the sequence length (9) must be divisible"),
        (Plan(cp=3), GPT_2, "the sequence length (1024) must be divisible by 2 x cp (6): each rank has two chunks"),
        (Plan(cp=4, tp=6, context="ulysses"), GPT_2, "heads (12) must be divisible by cp (4) x tp (6) for context="),
        (Plan(pp=13), GPT_2, "pp(13) x chunks(1) = 13 stages, but 12 layers"),
        (Plan(pp=2, dp=2, tp=2), GPT_2, "pp(2) x dp(2) x tp(2) = 8 ranks, but there are 6"),
        (Plan(dp=6, zero=1, offload=True), GPT_2, "offload is not supported by the planner yet"),
        (Plan(pp=6, layers=(2,) * 6), GPT_2, "layers is not supported by the planner yet"),
        (Plan(pp=6, chunks=2, schedule="bfs"), GPT_2, "bfs is not supported by the planner yet"),
        (Plan(dp=6, ep=3), find_model("Mixtral 8x7B"), "experts (8) must be divisible by ep (3)"),
    ],
    ids=str,
)
def test_the_planner_checks_a_plan_for_a_model(plan, model, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        check(plan, model, 6 if plan.ranks in (6, 8) and "there are" in words else None)


def test_a_batch_that_does_not_divide():
    assert Plan(dp=4, microbatch=2).with_batch(32).microbatches == 4
    with pytest.raises(ValueError, match=r"batch \(30\) must be divisible by dp \(4\) x microbatch \(2\)"):
        Plan(dp=4, microbatch=2).with_batch(30)


def test_a_pipeline_ranks_layers_are_those_of_its_stages():
    for pp, chunks in ((5, 1), (2, 4), (2, 5)):
        plan = Plan(pp=pp, chunks=chunks, schedule="interleaved" if chunks > 1 else "1f1b")
        stages = plan.stage_layers(12)
        assert layers_of(plan, GPT_2) == tuple(sum(stages[rank :: plan.pp]) for rank in range(plan.pp))


def test_sequence_parallelism_is_that_of_tensor_parallel():
    assert SEQUENCE_PARALLEL == WAYS
