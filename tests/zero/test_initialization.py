"""The start: all begin as rank 0; from the meta device with the same numbers, and without ever having all of them."""

import pytest
import torch
import torch.distributed as dist
from data_parallel.awkward_model import Awkward
from tiny_training import assert_every_rank_has, tiny_mlp, weights
from torch import nn
from zero.ladder import STAGES, linear, mine, stage_3, train, trained_alone, two_groups, whole_weights

import tinydist
from tinydist.zero import PerParameterSharding, ZeRO3, ZeROInfinity

on_all_stages = pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)


def on_meta(make):
    with torch.device("meta"):
        return make()


@on_all_stages
@pytest.mark.parametrize("sharding", [{}, {"sharding": PerParameterSharding}], ids=str)
def test_with_one_seed_it_has_the_numbers_of_a_whole_model(stage, sharding):
    def program():
        torch.manual_seed(0)
        module = nn.Sequential(
            *(on_meta(lambda: nn.Linear(8, 7 + k)) for k in (1, 1, 1)), on_meta(lambda: nn.LayerNorm(8))
        )
        return whole_weights(stage(module, **sharding))

    torch.manual_seed(0)
    expected = weights(nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)), nn.LayerNorm(8)))
    assert_every_rank_has(expected, tinydist.launch(program, 3).results, atol=0)


@on_all_stages
def test_tied_and_frozen_parameters_too(stage):
    """Awkward seeds itself, and then draws in the order of its layers; its buffer is none of a layer's."""

    def initialize(layer):
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()
        else:
            layer.scale.fill_(0.5)

    def program():
        module = on_meta(Awkward)
        torch.manual_seed(0)
        zero = stage(module, initialize=initialize, lr=0.01)
        start = whole_weights(zero)
        tied = zero.module.into.weight is zero.module.out.weight
        train(zero, mine)
        return tied, start, whole_weights(zero)

    tied, start, end = zip(*tinydist.launch(program, 3).results)
    assert all(tied)
    assert_every_rank_has(weights(Awkward()), start, atol=0)
    assert_every_rank_has(trained_alone(), end)


@on_all_stages
def test_all_begin_as_rank_0_and_groups_may_name_meta_parameters(stage):
    def program():
        module = on_meta(tiny_mlp)
        torch.manual_seed(dist.get_rank())
        zero = stage(module, param_groups=two_groups(module))
        return [len(group["params"]) > 0 for group in zero.optimizer.param_groups], whole_weights(zero)

    groups, found = zip(*tinydist.launch(program, 2).results)
    assert groups == ([True, True],) * 2
    assert_every_rank_has(weights(tiny_mlp()), found, atol=0)


W, LAYERS, RANKS = 64, 6, 4
UNIT = 4 * (W * W + W)  # bytes


def deep():
    return nn.Sequential(*(nn.Linear(W, W) for _ in range(LAYERS)))


@pytest.mark.parametrize("sharding", [{}, {"sharding": PerParameterSharding}], ids=str)
@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize("stage, shards", [(ZeRO3, LAYERS * UNIT // RANKS), (ZeROInfinity, 0)])
def test_no_rank_ever_has_more_than_its_shard_and_a_unit(stage, shards, fake, sharding):
    def program(make):
        stage(make(), units=linear, **sharding)

    peaks = [tinydist.launch(program, RANKS, make, fake=fake).memory[0].peak for make in (lambda: on_meta(deep), deep)]
    own = UNIT // RANKS if stage is ZeROInfinity else 0  # on its way to the host
    assert peaks[0] <= shards + UNIT + own + 100 < LAYERS * UNIT < peaks[1]


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: on_meta(lambda: nn.Sequential(nn.MultiheadAttention(4, 1))),
            r"ZeRO3: 0, a MultiheadAttention, .* the meta device and has no reset_parameters\(\): pass init",
        ),
        (
            lambda: nn.Sequential(nn.Linear(2, 2), on_meta(lambda: nn.Linear(2, 2))),
            "either all parameters of a module must be on the meta device, or none",
        ),
    ],
)
def test_what_cannot_start(make, message):
    with pytest.raises(ValueError, match=message):
        tinydist.launch(lambda: stage_3(make()), 2)
