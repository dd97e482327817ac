"""What may not be loaded: all ranks say why, and nothing has changed on any of them."""

import copy

import pytest
import torch
from tiny_training import tiny_mlp
from torch import nn
from unobserved import launch
from zero.ladder import STAGES, all_of, assert_same, everything, stage_0, stage_1, stage_2, stage_3, train, two_groups

from tinydist import checkpoint
from tinydist.checkpoint.rules import CheckpointError, complete, one_layout
from tinydist.checkpoint.shard_overlap import ParameterPart
from tinydist.tensor_parallel.cuts import Cut
from tinydist.zero import ZeRO1

RUNGS = [stage_0, *STAGES]


def saved_states(stage=stage_3, steps=2, make=tiny_mlp, **options):
    def program():
        zero = stage(make(), **options)
        train(zero, everything, steps)
        return checkpoint.sharded(zero)

    return launch(program, 3).results


@pytest.fixture(scope="module")
def good():
    return saved_states()


@pytest.fixture(scope="module")
def a_step_later():
    return saved_states(steps=3)


def refused(states_of, rung=stage_1, make=tiny_mlp, ranks=2, **options):
    """What all ranks say to ``states_of(rank)``."""

    def program():
        zero = rung(make(), **options)
        train(zero, everything, steps=1)
        before = all_of(zero)
        with pytest.raises(CheckpointError) as caught:
            checkpoint.load(zero, *states_of(torch.distributed.get_rank()))
        assert_same(all_of(zero), before)
        return str(caught.value)

    said = launch(program, ranks).results
    assert said == [said[0]] * ranks and "load failed; no rank was modified. On rank" in said[0]
    return said[0]


def changed(states, rank, change):
    states = copy.deepcopy(states)
    change(states[rank])
    return states


def entry(state, name="0.weight"):
    return state["parameters"][name]


def vectors(state):
    return entry(state)["vectors"]


def test_shards_of_two_moments(good, a_step_later):
    said = refused(lambda rank: [good[0], a_step_later[1], good[2]])
    assert "the states of ranks 0 and 1 come from different checkpoints: step: 2 and 3" in said


@pytest.mark.parametrize(
    "which, given", [([0, 1], "[0, 1]"), ([0, 1, 1, 2], "[0, 1, 1, 2]"), ([2, 2, 1], "[1, 2, 2]"), ([], None)]
)
def test_each_state_is_given_once(good, which, given):
    said = refused(lambda rank: [good[i] for i in which])
    needed = f"the states of all 3 ranks that saved are required, each once; got those of ranks {given}"
    assert (needed if given else "no state was given") in said


def test_another_optimizer(good):
    said = refused(lambda rank: good, optimizer=torch.optim.SGD, lr=0.1)
    assert "the checkpoint was saved with AdamW, but the optimizer is SGD" in said


def test_shards_of_different_optimizers(good):
    others = saved_states(optimizer=torch.optim.SGD, lr=0.1, momentum=0.9)
    said = refused(lambda rank: [good[0], good[1], others[2]])
    assert "the states of ranks 0 and 2 come from different checkpoints: optimizer: AdamW and SGD" in said


def larger():
    return nn.Sequential(*tiny_mlp(), nn.Linear(8, 8))


def wider():
    module = tiny_mlp()
    module[4] = nn.Linear(16, 8, bias=False)
    module[4].register_parameter("bias", nn.Parameter(torch.zeros(1)))
    return module


def half_frozen():
    module = tiny_mlp()
    module[0].requires_grad_(False)
    return module


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize(
    "saving, loading, reason",
    [
        (larger, tiny_mlp, "the module has no 5.bias, 5.weight, which the checkpoint has"),
        (tiny_mlp, larger, " is missing in the checkpoint"),
        (tiny_mlp, wider, "4.bias has shape [1], but [8] was saved"),
        (tiny_mlp, half_frozen, "is frozen here, but was trained when saved"),
    ],
)
def test_the_states_of_another_module(saving, loading, reason, rung):
    states = saved_states(make=saving)
    assert reason in refused(lambda rank: states, rung, loading)


def test_parameters_of_one_group_that_were_saved_with_other_options(good):
    """Groups may be others; but one group has one learning rate."""
    states = saved_states(stage=lambda module: stage_2(module, param_groups=two_groups(module)))
    said = refused(lambda rank: states)
    assert "4.bias and 4.weight share a parameter group, but were saved with weight_decay: 0.0 and 0.01" in said


def test_groups_in_another_order():
    def grouped(order):
        return lambda module: stage_2(module, param_groups=two_groups(module)[::order])

    def load():
        zero = grouped(-1)(tiny_mlp())
        checkpoint.load(zero, *states)
        return [(group["lr"], group["weight_decay"]) for group in zero.optimizer.param_groups]

    states = saved_states(stage=grouped(1))
    assert launch(load, 2).results == [[(0.02, 0.01), (0.001, 0.0)]] * 2


def test_other_buffers():
    def with_buffer(shape):
        def make():
            module = tiny_mlp()
            module.register_buffer("scale", torch.ones(shape))
            return module

        return make

    states = saved_states(make=with_buffer(2))
    assert "the buffer scale has shape [3], but [2] was saved" in refused(lambda rank: states, make=with_buffer(3))
    assert "the module has no scale, which the checkpoint has" in refused(lambda rank: states)
    states = saved_states()
    assert "the buffer scale is missing in the checkpoint" in refused(lambda rank: states, make=with_buffer(3))


NAN = float("nan")


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize(
    "change, reason",
    [
        (
            lambda s: vectors(s).pop("exp_avg"),
            "0.weight must have the vectors ['exp_avg', 'exp_avg_sq', 'weight']",
        ),
        (
            lambda s: entry(s)["scalars"].clear(),
            "0.weight must have the scalars ['step'], but has",
        ),
        (lambda s: s["parameters"].pop("0.weight"), "weight of 0.weight has 128 elements"),
        (lambda s: s["parameters"].update(other={}), "other of the state of rank 1 is not in the layout"),
        (lambda s: entry(s).update(part=(8, 0, 16)), "0.weight is full in the state of rank 2, but a part in another"),
        (lambda s: vectors(s)["exp_avg"].fill_(NAN), "exp_avg of 0.weight has non-finite values"),
        (lambda s: vectors(s)["weight"][-1:].fill_(-torch.inf), "weight of 0.weight has non-finite values"),
        (lambda s: entry(s)["scalars"]["step"].fill_(7), "step of 0.weight differs between states"),
        (lambda s: entry(s).update(start=entry(s)["start"] + 1), "of 0.weight has 128 elements; the first"),
        (lambda s: longer(s, "exp_avg_sq"), "exp_avg_sq of 0.weight has 128 elements"),
        (lambda s: vectors(s).update(weight=vectors(s)["weight"].half()), "weight of 0.weight must be torch.float32"),
        (lambda s: s.pop("step"), "a state must have the keys step, world, optimizer, run, layout, rank"),
        (lambda s: s["run"].update(plan=3), "the states of ranks 0 and 1 come from different checkpoints: run"),
        (lambda s: s["layout"]["0.weight"].update(shape=[8, 16]), "come from different checkpoints: layout"),
        (lambda s: s.update(parameters=None), "AttributeError"),
    ],
)
def test_a_state_that_is_not_as_it_was_saved(good, change, reason, rung):
    assert reason in refused(lambda rank: changed(good, 1, change), rung)


def longer(state, key):
    vectors(state)[key] = torch.cat([vectors(state)[key], torch.ones(3)])


def test_a_rank_that_must_refuse_takes_the_others_with_it(good):
    bad = changed(good, 0, lambda state: vectors(state)["weight"].fill_(NAN))
    said = refused(lambda rank: bad if rank == 2 else good, stage_0, ranks=3)
    assert said.endswith("On rank 2: weight of 0.weight has non-finite values")


def test_ranks_that_are_given_different_saves(good, a_step_later):
    said = refused(lambda rank: good if rank == 0 else a_step_later, stage_2, ranks=3)
    assert said.endswith("On ranks 1-2: it was given another checkpoint than rank 0")


def test_a_row_has_one_count_of_steps():
    """A plain optimizer keeps one for each parameter, and none for what has had no gradient."""

    def partly():
        zero = stage_0(tiny_mlp())
        zero.module[2:](torch.ones(2, 16)).sum().backward()
        zero.step()
        return checkpoint.sharded(zero)

    states = launch(partly, 1).results
    said = refused(lambda rank: states, ZeRO1)
    assert "share a bucket, but were saved with different vectors" in said


# Parameters that are cut.

PLANNED = {"shape": [4, 6], "vectors": {"weight": "torch.float32"}, "scalars": []}


@pytest.mark.parametrize(
    "given, reason",
    [
        ([((4, 0, 3), 12)], "a line of w has 6 columns, but the states have 3 of them"),
        ([((4, 0, 3), 12), ((4, 2, 4), 16)], "the first 3 are given, and rank 1 goes on with columns 2 to 5"),
        ([((4, 0, 3), 12), ((4, 3, 3), 6)], "weight of w has 12 elements, but the states have 6 of them"),
        ([((4, 0, 3), 12), ((2, 6, 6), 12)], "the 24 elements of w are cut into lines of unequal length"),
        ([((5, 0, 5), 25)], "the 24 elements of w are cut into lines of unequal length"),
    ],
)
def test_parts_lie_side_by_side(given, reason):
    entries = {
        rank: {"part": ParameterPart(*part), "start": 0, "vectors": {"weight": torch.ones(size)}, "scalars": {}}
        for rank, (part, size) in enumerate(given)
    }
    with pytest.raises(CheckpointError) as caught:
        complete("w", PLANNED, entries)
    assert reason in str(caught.value)


def test_ranks_that_know_one_parameter_save_the_same_of_it():
    other = {**PLANNED, "shape": [6, 4]}
    assert one_layout([{"w": PLANNED}, {"w": PLANNED, "b": other}]) == {"w": PLANNED, "b": other}
    with pytest.raises(CheckpointError, match=r"w differs between ranks: .*4, 6.* and .*6, 4"):
        one_layout([{"w": PLANNED}, {"w": other}])


def part_of_a_layer(dim=None, part=0):
    """One of two parts; or all of it."""
    torch.manual_seed(0)
    module = nn.Linear(6, 4)
    if dim is not None:
        cut = Cut(dim, module.weight.shape[dim], part, 2, 1)
        module.weight, module.bias = cut.parameter(module.weight), None
    return stage_0(module, torch.optim.SGD, lr=0.1)


def test_a_parameter_that_is_cut_otherwise_than_it_was():
    states = [checkpoint.sharded(part_of_a_layer(0, part)) | {"rank": part, "world": 2} for part in (0, 1)]
    again = part_of_a_layer(0, 1)
    again.module.weight.data.zero_()
    checkpoint.load(again, *states)
    assert torch.equal(again.module.weight, part_of_a_layer().module.weight[2:])
    with pytest.raises(
        CheckpointError, match="weight was saved with other sharding: along another dim, or in other blocks"
    ):
        checkpoint.load(part_of_a_layer(1), *states)
