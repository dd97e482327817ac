"""The second sharding: each parameter cut along dim 0, as fully_shard does. The same values, bytes sent, bytes held."""

from functools import partial

import pytest
import torch
import torch.distributed as dist
from data_parallel.awkward_model import Awkward
from tiny_training import assert_every_rank_has, weights
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from zero.ladder import STAGES, Alone, everything, linear, mine, stage_3, train, trained, trained_alone
from zero.test_zero3 import uneven

import tinydist
from tinydist.zero import PerParameterSharding

slow = partial(pytest.param, marks=pytest.mark.exhaustive)
on_all_stages = pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)


def by_parameter(stage):
    return lambda module, *given, **options: stage(module, *given, sharding=PerParameterSharding, **options)


@on_all_stages
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_equals_one_process(stage, ranks):
    """Awkward has tied, frozen and unused parameters, and 3 rows for 8 ranks."""
    how = {"make": lambda: Awkward(unused=True), "optimizer": torch.optim.Adam, "clip": 0.01, "microbatches": 2}
    run = tinydist.launch(lambda: trained(by_parameter(stage), **how), ranks, observe=False)
    assert_every_rank_has(trained_alone(**how), run.results)


def ours(module, **options):
    return stage_3(module, sharding=PerParameterSharding, lr=0.01, **options)


def theirs(module, **policy):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    policy = {"mp_policy": MixedPrecisionPolicy(**policy)} if policy else {}
    for layer in filter(linear, module):
        fully_shard(layer, mesh=mesh, reshard_after_forward=True, **policy)
    fully_shard(module, mesh=mesh, reshard_after_forward=True, **policy)  # the outermost, too
    return Alone(module, torch.optim.AdamW, lr=0.01)


def shards(rung):
    """This rank's part of each parameter, as the module has it between steps."""
    parameters = dict(rung.module.named_parameters())
    return {name: getattr(p, "_local_tensor", p).detach().clone() for name, p in parameters.items()}


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, *map(slow, (4, 6, 7, 8))])
def test_each_rank_has_and_sends_what_fully_shard_does(ranks):
    """Shards of the same shapes and values; the same bytes in a step."""

    def program(kind, steps):
        rung = kind(uneven())
        train(
            rung, lambda step: [tensor[dist.get_rank() :: dist.get_world_size()] for tensor in everything(step)], steps
        )
        return shards(rung)

    found = [
        [tinydist.launch(program, ranks, kind, steps, observe="communication") for steps in (1, 2)]
        for kind in (ours, theirs)
    ]
    for mine_after, theirs_after in zip(*(two.results for _, two in found)):
        torch.testing.assert_close(mine_after, theirs_after, rtol=0, atol=1e-6)
    sent = [[sum(b) - sum(a) for a, b in zip(one.traffic, two.traffic)] for one, two in found]
    assert sent[0] == sent[1]


@pytest.mark.parametrize("ranks", [2, 3])
def test_in_16_bits_too(ranks):
    """Computed in bf16, reduced in fp32: both send 2 bytes a parameter twice, and 4 once."""

    def program(kind, steps):
        rung = kind()
        train(rung, mine, steps, dtype=torch.bfloat16)

    kinds = (
        lambda: ours(uneven().bfloat16()),
        lambda: theirs(uneven(), param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    )
    sent = []
    for kind in kinds:
        one, two = (tinydist.launch(program, ranks, kind, steps, observe="communication").traffic for steps in (1, 2))
        sent.append([sum(b) - sum(a) for a, b in zip(one, two)])
    assert sent[0] == sent[1]


def test_the_layouts_differ_in_what_is_padded():
    """5 + 5 x 8 numbers on 3 ranks: in a row 45, which divides; by parameter 2 and 16 a rank, 54."""

    def program(sharding):
        zero = stage_3(uneven()[:1], **sharding)
        (bucket,) = zero.buckets
        return bucket.sharding.padding, {name: tuple(p.shape) for name, p in zero.module.named_parameters()}

    assert [padding for padding, _ in tinydist.launch(program, 3, {}).results] == [0, 0, 0]
    padding, shapes = zip(*tinydist.launch(program, 3, {"sharding": PerParameterSharding}).results)
    assert padding == (9, 9, 9)
    assert shapes == tuple({"0.weight": (rows, 8), "0.bias": (rows,)} for rows in (2, 2, 1))


def test_weights_are_whole_again():
    def program():
        zero = ours(uneven())
        for bucket in zero.all_buckets:
            bucket.gather()
        return weights(zero.module)

    assert_every_rank_has(weights(uneven()), tinydist.launch(program, 3).results, atol=0)
