"""Other models, other meshes: the curve of one process, the model's names, its groups of parameters."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from training.trained import (
    MAX_NORM,
    STEPS,
    alone,
    assert_equals_one_process,
    deep,
    distance,
    made,
    model,
    on_ranks,
    rows_of,
    text,
    uneven,
)

import tinydist
from tinydist.attention.decoder import Decoder, DecoderConfig
from tinydist.training import AXES, Plan, parallelize
from tinydist.training.mesh import shape_of

SIX_HEADS = partial(model, layers=3, heads=6, dim=24)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(3, 2, 2, zero=3, microbatches=2, sequence_parallel="save", recompute="full", max_norm=MAX_NORM),
        Plan(3, 1, 2, zero=0, microbatches=3, schedule="gpipe", max_norm=MAX_NORM),
        Plan(1, 2, 3, zero=2, microbatches=2, sequence_parallel="regather", max_norm=MAX_NORM),
        Plan(2, 3, 1, zero=1, layers=(1, 2), microbatches=4, max_norm=MAX_NORM),
    ],
    ids=str,
)
def test_meshes_that_are_no_powers_of_2(plan):
    """The vocabulary is not divisible by 3, nor do most buckets; the table is tied between the first and last stage."""
    assert_equals_one_process(plan, SIX_HEADS)


def grouped():
    """Four query heads to a head of keys and values; on 4 tensor ranks each of those is on two."""
    torch.manual_seed(0)
    return uneven(Decoder(DecoderConfig(layers=3, heads=8, kv_heads=2, dim=32)))


@pytest.mark.parametrize(
    "plan",
    [
        Plan(2, 1, 4, zero=1, microbatches=2, sequence_parallel="save", recompute="selective", max_norm=MAX_NORM),
        Plan(1, 2, 2, zero=3, recompute="full", max_norm=MAX_NORM),
    ],
    ids=str,
)
def test_grouped_heads(plan):
    assert_equals_one_process(plan, grouped)


@pytest.mark.parametrize("context", ["ring", "gather", "ulysses"])
@pytest.mark.parametrize(
    "make, plan",
    [
        (model, Plan(2, 1, 2, cp=2, zero=1, sequence_parallel="save", max_norm=MAX_NORM)),
        (model, Plan(dp=2, cp=4, zero=3, microbatches=2, recompute="selective", max_norm=MAX_NORM)),
        (grouped, Plan(dp=2, cp=2, recompute="full", max_norm=MAX_NORM)),
    ],
)
def test_context_ranks_have_the_losses_of_one_process(make, plan, context):
    """No sum of the model has more terms than there are words: 256 roundings to float32."""
    plan = replace(plan, context=context)
    assert max(distance(on_ranks(plan, make), alone(make))) <= 256 * 2**-24


@pytest.mark.parametrize("zero, reduce_each", [(0, True), (1, True), (2, False), (3, False)])
def test_gradients_that_are_accumulated_before_or_after_they_are_reduced(zero, reduce_each):
    plan = Plan(2, 2, 1, zero=zero, microbatches=3, reduce_each=reduce_each, max_norm=MAX_NORM)
    assert_equals_one_process(plan)


def test_any_legal_order_of_events():
    plan = Plan(2, 1, 2, zero=3, microbatches=3, sequence_parallel="overlap", max_norm=MAX_NORM)
    assert_equals_one_process(plan, schedule="shuffle", seed=1)


def test_ranks_may_be_laid_out_otherwise():
    plan = Plan(2, 2, 1, zero=1, max_norm=MAX_NORM)

    def program():
        sizes = shape_of(plan)._asdict()
        mesh = init_device_mesh("cpu", [sizes[axis] for axis in AXES[::-1]], mesh_dim_names=AXES[::-1])
        engine = made(plan, mesh=mesh)
        return [engine.step(*rows_of(engine, text(step)))[:2] for step in range(STEPS)]

    for found in tinydist.launch(program, 4, observe=False).results:
        assert max(distance(found, alone())) <= 1e-5


def test_all_ranks_get_the_first_ones_model_and_the_caller_may_bring_what_he_likes():
    plan = Plan(2, 2, 1, zero=1, max_norm=MAX_NORM)

    def other():
        module = model()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += torch.distributed.get_rank()
        return module

    assert on_ranks(plan, other) == on_ranks(plan)


def test_ranks_that_bring_different_models_are_told():
    def program():
        parallelize(deep(2 + torch.distributed.get_rank())(), Plan(pp=2))

    with pytest.raises(ValueError, match="parallelize: parameters differ between ranks: "):
        tinydist.launch(program, 2, observe=False)


def test_every_parameter_keeps_its_name_and_its_group():
    plan = Plan(2, 1, 2, zero=3)

    def program():
        engine = made(plan)
        decays = {
            engine.names[parameter]: zero.optimizer.param_groups[zero.group_of[bucket]]["weight_decay"]
            for zero in engine.zero.values()
            for bucket in zero.buckets
            for parameter in bucket.parameters
        }
        assert decays.keys() == set(engine.names.values())
        return decays

    first, _, last, _ = tinydist.launch(program, plan.ranks, observe=False).results
    whole = dict(model().named_parameters())
    assert first | last == {name: 0.1 if whole[name].ndim > 1 else 0.0 for name in whole}
    assert first.keys() & last.keys() == {"embedding.weight"}


def test_groups_of_other_parameters_are_refused():
    with pytest.raises(ValueError, match=r"param_groups has parameters that are not in the model: a tensor \[3\]"):
        tinydist.launch(lambda: parallelize(model(), Plan(), param_groups=[torch.ones(3, requires_grad=True)]), 1)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_offload_changes_no_loss(zero):
    assert_equals_one_process(Plan(dp=2, zero=zero, microbatches=2, max_norm=MAX_NORM, offload=True))


@pytest.mark.parametrize(
    "plan",
    [
        Plan(2, 2, 1, zero=1, microbatches=3, max_norm=MAX_NORM, overlap_param_gather=True),
        Plan(1, 4, 2, zero=2, replicate=2, microbatches=2, max_norm=MAX_NORM, overlap_param_gather=True),
        Plan(dp=2, zero=2, recompute="full", max_norm=MAX_NORM, offload=True, overlap_param_gather=True),
    ],
    ids=str,
)
def test_a_gather_in_forward_changes_no_loss(plan):
    assert_equals_one_process(plan)


def test_a_gather_in_forward_starts_after_the_step():
    """It is left out of the step, and the next forward brings it."""

    def gathered(**how):
        def program():
            engine = made(Plan(dp=2, zero=1, **how))
            engine.forward_backward(*rows_of(engine, text(0)))
            with tinydist.region("step"):
                engine.optimizer_step()
            engine.forward_backward(*rows_of(engine, text(1)))

        run = tinydist.launch(program, 2)
        waits = [event for event in run.between("step").trace.of(0) if event.name == "wait"]
        return len(waits), sum(map(sum, run.traffic))

    (after, in_all), (in_forward, same) = gathered(), gathered(overlap_param_gather=True)
    assert in_forward < after and same == in_all
