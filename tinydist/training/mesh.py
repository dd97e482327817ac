"""The device mesh: ranks along five axes (pp, replicate, shard, cp, tp), and the link that each axis uses.

    pp         0                    1                  16 ranks as pp=2, replicate=2, shard=2, tp=2
    replicate  0         1          0         1
    shard      0    1    0    1     0    1    0    1
    tp         0 1  0 1  0 1  0 1   0 1  0 1  0 1  0 1
    rank       0 1  2 3  4 5  6 7   8 9  ...

tp varies fastest, as in Megatron-LM: it communicates most, in every layer, without overlap, so its ranks share a node.
Context ranks come next (there is one in the picture), then shards and replicas; pipelines communicate least and may
span nodes. Experts have no axis: ep neighbors of those along replicate, shard and cp share them. Source: Narayanan et
al., Megatron-LM, 2021, section 3.2, takeaway 1; Llama Team 2024, section 3.3.2.
"""

from math import prod
from typing import NamedTuple

import numpy as np
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from ..plan import Plan
from ..rules import one_of, validate, whole

AXES = ("pp", "replicate", "shard", "cp", "tp")
an_axis = one_of(AXES)


class Place(NamedTuple):
    """Of a rank, along each axis."""

    pp: int
    replicate: int
    shard: int
    cp: int
    tp: int


@validate(plan=Plan)
def shape_of(plan):
    return Place(plan.pp, plan.replicas, plan.shard, plan.cp, plan.tp)


@validate(plan=Plan, rank=whole)
def place_of(plan, rank):
    """Mesh coordinates of a rank. Raises ``ValueError`` if the rank is not in the plan."""
    shape = shape_of(plan)
    if rank >= plan.ranks:
        raise ValueError(f"place_of: {plan.product}, 0 to {plan.ranks - 1}, but rank {rank} was requested")
    return Place(*[rank // prod(shape[axis + 1 :]) % size for axis, size in enumerate(shape)])


def data_rank(plan, place):
    """Of those that have other rows."""
    return place.replicate * plan.shard + place.shard


@validate(plan=Plan, axis=an_axis, rank=whole)
def members(plan, axis, rank=0):
    """The group of a rank along an axis: the ranks whose other coordinates are equal."""
    shape, number = shape_of(plan), AXES.index(axis)
    stride = prod(shape[number + 1 :])
    first = rank - place_of(plan, rank)[number] * stride
    return list(range(first, first + shape[number] * stride, stride))


@validate(plan=Plan)
def make_mesh(plan):
    """The device mesh of all ranks. Raises ``ValueError`` if the world size does not match the plan."""
    if dist.get_world_size() != plan.ranks:
        raise ValueError(f"make_mesh: {plan.product}, but the world has {dist.get_world_size()}")
    return init_device_mesh("cuda" if dist.get_backend() == "nccl" else "cpu", shape_of(plan), mesh_dim_names=AXES)


@validate(plan=Plan, mesh=DeviceMesh)
def check_mesh(plan, mesh):
    """Its axes may be in another order, which lays ranks out otherwise."""
    wanted, given = shape_of(plan)._asdict(), dict(zip(mesh.mesh_dim_names or (), mesh.shape))
    if given != wanted:
        raise ValueError(f"parallelize: the mesh must have the axes {sizes(wanted)}, but has {sizes(given)}")
    return mesh


def groups_of_states(plan, mesh):
    """Of this rank: those among whom states are sharded, and those that have the same shards. Ranks of a context group
    have the same parameters, and other tokens: they shard, or are copies."""
    if plan.cp == 1:
        return mesh.get_group("shard"), mesh.get_group("replicate")
    return groups_along(mesh, plan.copies, plan.shards)[0]


def groups_of_experts(plan, mesh):
    """The same of experts; and those that share them, which are neighbors."""
    return groups_along(mesh, plan.expert_copies, plan.expert_shards, plan.ep)


def groups_along(mesh, copies, shards, ep=1):
    """Of this rank's data ranks as a grid: (those along its second axis, along its first), along its third."""
    grid = data_ranks(mesh).reshape(copies, shards, ep)
    copy, shard, part = np.argwhere(grid == dist.get_rank())[0]
    lines = grid[copy, :, part], grid[:, shard, part], grid[copy, shard]
    shards, copies, sharing = (dist.new_group(line.tolist(), use_local_synchronization=True) for line in lines)
    return (shards, copies), sharing


def data_ranks(mesh):
    """Those with the same stages, and parts of matrices, as this rank: along replicate, shard and cp."""
    place = place_in(mesh)
    ranks = np.array(mesh.mesh.tolist()).transpose([mesh.mesh_dim_names.index(axis) for axis in AXES])
    return ranks[place.pp, ..., place.tp].flatten()


def sizes(axes):
    return " x ".join(f"{axis}({size})" for axis, size in axes.items())


def place_in(mesh):
    """Of this rank."""
    return Place(*map(mesh.get_local_rank, AXES))
