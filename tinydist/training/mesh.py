"""The mesh: ranks laid out in four axes, and which of them must be near.

    pp         0                    1                  16 ranks as pp=2, replicate=2, shard=2, tp=2
    replicate  0         1          0         1
    shard      0    1    0    1     0    1    0    1
    tp         0 1  0 1  0 1  0 1   0 1  0 1  0 1  0 1
    rank       0 1  2 3  4 5  6 7   8 9  ...

tp is fastest, as in Megatron-LM: it sends most, in every layer, and nothing hides it, so its ranks are neighbors in a
node. Shards come next, then their copies; pipelines send least, and may lie across nodes. Source: Narayanan et al.,
Megatron-LM, 2021, section 3.2, takeaway 1.
"""

from math import prod
from typing import NamedTuple

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from ..hardware import find_cluster
from ..rules import one_of, takes, whole
from .plan import Plan

AXES = ("pp", "replicate", "shard", "tp")
an_axis = one_of(AXES)


class Place(NamedTuple):
    """Of a rank, along each axis."""

    pp: int
    replicate: int
    shard: int
    tp: int


@takes(plan=Plan)
def shape_of(plan):
    return Place(plan.pp, plan.replicas, plan.shard, plan.tp)


@takes(plan=Plan, rank=whole)
def place_of(plan, rank):
    """Where a rank is. Raises ``ValueError`` for one that the plan has not."""
    shape = shape_of(plan)
    if rank >= plan.ranks:
        raise ValueError(f"place_of: {in_words(plan)}, 0 to {plan.ranks - 1}, but rank {rank} was asked for")
    return Place(*[rank // prod(shape[axis + 1 :]) % size for axis, size in enumerate(shape)])


@takes(plan=Plan, axis=an_axis, rank=whole)
def members(plan, axis, rank=0):
    """The ranks of a rank's group along an axis: all that differ from it there alone."""
    shape, number = shape_of(plan), AXES.index(axis)
    stride = prod(shape[number + 1 :])
    first = rank - place_of(plan, rank)[number] * stride
    return list(range(first, first + shape[number] * stride, stride))


@takes(plan=Plan, axis=an_axis)
def link_of(plan, axis, cluster):
    """The slowest link on which an axis lies, of all its groups; None if it has one rank."""
    cluster = find_cluster(cluster)
    cluster.check_ranks(plan.ranks)
    groups = {tuple(members(plan, axis, rank)) for rank in range(plan.ranks)}
    links = [link for link in map(cluster.ring_link, sorted(groups)) if link]
    return min(links, key=lambda link: link.bandwidth, default=None)


def in_words(plan):
    return f"pp({plan.pp}) x dp({plan.dp}) x tp({plan.tp}) = {plan.ranks} ranks"


@takes(plan=Plan)
def make_mesh(plan):
    """Of all ranks. Raises ``ValueError`` if they are not as many as the plan has."""
    if dist.get_world_size() != plan.ranks:
        raise ValueError(f"make_mesh: {in_words(plan)}, but the world has {dist.get_world_size()}")
    return init_device_mesh("cuda" if dist.get_backend() == "nccl" else "cpu", shape_of(plan), mesh_dim_names=AXES)


@takes(plan=Plan, mesh=DeviceMesh)
def check_mesh(plan, mesh):
    """Its axes may be in another order, which lays ranks out otherwise."""
    wanted, given = shape_of(plan)._asdict(), dict(zip(mesh.mesh_dim_names or (), mesh.shape))
    if given != wanted:
        raise ValueError(f"parallelize: the mesh must have the axes {sizes(wanted)}, but has {sizes(given)}")
    return mesh


def sizes(axes):
    return " x ".join(f"{axis}({size})" for axis, size in axes.items())


def place_in(mesh):
    """Of this rank."""
    return Place(*map(mesh.get_local_rank, AXES))
