"""HSDP: sharded inside of each node, with a replica of every shard in each other node."""

import pytest
import torch
import torch.distributed as dist
from tiny_training import assert_every_rank_has, tiny_mlp, weights
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from unobserved import launch
from zero.ladder import (
    STAGES,
    Alone,
    all_of,
    assert_same,
    linear,
    mine,
    stage_1,
    stage_3,
    train,
    trained,
    trained_alone,
    whole_weights,
)

import tinydist
from tinydist import checkpoint
from tinydist.checkpoint.rules import CheckpointError
from tinydist.zero import PerParameterSharding

on_all_stages = pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)


def nodes_of(ranks):
    """The ranks of this node, and those that have the same place in other nodes."""
    mesh = init_device_mesh("cpu", (dist.get_world_size() // ranks, ranks), mesh_dim_names=("replicate", "shard"))
    return {"group": mesh.get_group("shard"), "replicas": mesh.get_group("replicate")}


def hybrid(stage, ranks):
    return lambda module, *given, **options: stage(module, *given, **nodes_of(ranks), **options)


@on_all_stages
@pytest.mark.parametrize("nodes, ranks", [(2, 1), (1, 2), (2, 2), (2, 3), (4, 2)])
def test_equals_one_process(stage, nodes, ranks):
    how = {"clip": 0.01, "microbatches": 2}
    run = launch(lambda: trained(hybrid(stage, ranks), **how), nodes * ranks)
    assert_every_rank_has(trained_alone(**how), run.results)


@on_all_stages
def test_all_start_as_rank_0(stage):
    def program(meta):
        torch.manual_seed(dist.get_rank())
        with torch.device("meta" if meta else "cpu"):
            module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        return whole_weights(hybrid(stage, 2)(module))

    torch.manual_seed(0)
    expected = weights(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)))
    for meta in (True, False):
        assert_every_rank_has(expected, launch(program, 4, meta).results, atol=0)


NBYTES = sum(p.nbytes for p in tiny_mlp().parameters())


def sent_in_a_step(make, nodes, ranks):
    """Bytes of rank 0: inside of its node, and to the others."""

    def program(steps):
        train(make(tiny_mlp()), mine, steps)

    one, two = (tinydist.launch(program, nodes * ranks, steps, observe="communication").traffic[0] for steps in (1, 2))
    more = [b - a for a, b in zip(one, two)]
    return round(sum(more[:ranks])), round(sum(more[ranks:]))


@pytest.mark.parametrize("nodes, ranks", [(2, 2), (2, 4), (4, 2)])
@pytest.mark.parametrize("stage, times", [(stage_1, 2), (stage_3, 3)])
def test_all_but_an_all_reduce_of_shards_stays_in_the_node(stage, times, nodes, ranks):
    inside, across = sent_in_a_step(hybrid(stage, ranks), nodes, ranks)
    assert inside == times * (ranks - 1) * NBYTES // ranks
    assert across == 2 * (nodes - 1) * NBYTES // ranks // nodes


def torchs(ranks):
    def make(module):
        mesh = init_device_mesh("cpu", (dist.get_world_size() // ranks, ranks), mesh_dim_names=("replicate", "shard"))
        for layer in filter(linear, module):
            fully_shard(layer, mesh=mesh)
        return Alone(fully_shard(module, mesh=mesh), torch.optim.AdamW, lr=0.01)

    return make


def test_sends_and_computes_what_fully_shard_does():
    assert sent_in_a_step(hybrid(stage_3, 2), 2, 2) == sent_in_a_step(torchs(2), 2, 2)

    def theirs():
        rung = torchs(2)(tiny_mlp())
        train(rung, mine)
        return weights(rung.module)

    expected = launch(theirs, 4).results[0]
    run = launch(lambda: trained(hybrid(stage_3, 2), tiny_mlp), 4)
    assert_every_rank_has(expected, run.results)


@pytest.mark.parametrize("sharding", [{}, {"sharding": PerParameterSharding}], ids=str)
def test_the_first_replica_saves_and_all_load(sharding, tmp_path):
    def save():
        zero = hybrid(stage_3, 2)(tiny_mlp(), lr=0.01, **sharding)
        train(zero, mine, steps=1)
        checkpoint.save(zero, tmp_path)
        return all_of(zero)

    def load():
        zero = hybrid(stage_1, 3)(tiny_mlp(), lr=0.5)
        checkpoint.load(zero, tmp_path)
        return all_of(zero)

    saved = launch(save, 4).results
    assert len(list(tmp_path.glob("*/*.safetensors"))) == 2
    for found in launch(load, 6).results:
        assert_same(found, saved[0])


def test_a_rank_that_must_refuse_takes_all_nodes_with_it():
    def program():
        zero = hybrid(stage_3, 2)(tiny_mlp())
        states = [None] * 2
        dist.all_gather_object(states, checkpoint.sharded(zero), zero.group)
        if dist.get_rank() == 2:
            states[0]["parameters"]["0.weight"]["vectors"]["weight"].fill_(torch.nan)
        before = all_of(zero)
        with pytest.raises(CheckpointError, match=r"weight of 0\.weight has non-finite values"):
            checkpoint.load(zero, *states)
        assert_same(all_of(zero), before)

    launch(program, 4)
