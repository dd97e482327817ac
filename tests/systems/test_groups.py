"""Who is in whose group: Megatron-core's RankGenerator, torch's DeviceMesh, and the arithmetic of our plans."""

import random
from math import prod

import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import tinydist
from tinydist.training import Plan, members

TOKENS = ["tp", "cp", "ep", "dp", "pp", "tp-dp", "tp-pp", "dp-cp", "tp-cp", "tp-dp-cp", "tp-ep", "tp-ep-dp", "tp-ep-pp"]


@pytest.fixture(scope="module")
def generator():
    parallel_state = pytest.importorskip("megatron.core.parallel_state", reason="make systems installs Megatron-core")
    return parallel_state.RankGenerator


def worlds(third, seed):
    """Sizes of 200 of up to 96 ranks, and an order, the fastest axis first; ``third``: the axis that dp, tp, pp have
    beside them."""
    draw = random.Random(seed)
    for _ in range(200):
        sizes = {"tp": 0, "pp": 0, "dp": 0, third: 0}
        while not 0 < prod(sizes.values()) <= 96:
            sizes = {axis: draw.choice([1, 1, 2, 2, 3, 4, 6, 8]) for axis in sizes}
        order = ["tp", "cp", "ep", "dp", "pp"]
        draw.shuffle(order)
        yield {axis: sizes.get(axis, 1) for axis in order}, draw.randrange(prod(sizes.values()))


def groups_in_a_mesh(sizes):
    """Of this rank: for each token the ranks of its group, as torch's mesh has them."""
    mesh = init_device_mesh("cpu", (*reversed(sizes.values()),), mesh_dim_names=(*reversed(sizes),))
    groups = {}
    for token in TOKENS:
        axes = sorted(token.split("-"), key=mesh.mesh_dim_names.index)
        along = mesh[axes[0]] if len(axes) == 1 else mesh[(*axes,)]._flatten()
        groups[token] = dist.get_process_group_ranks(along.get_group())
    return groups


@pytest.mark.parametrize("third", ["cp", "ep"])  # of its generator for dense layers, of that for experts
def test_megatrons_groups_are_those_of_torchs_mesh(generator, third):
    for sizes, rank in worlds(third, seed=third):
        theirs = generator(**sizes, order="-".join(sizes))
        alone = dict(fake=True, only=[rank], observe=False)
        ours = tinydist.launch(groups_in_a_mesh, prod(sizes.values()), sizes, **alone).results[rank]
        for token, group in ours.items():
            assert group in theirs.get_ranks(token), (sizes, token)


def test_megatrons_groups_are_those_of_a_plan(generator):
    """In Megatron's own order, tp-cp-ep-dp-pp, all groups of all ranks."""
    for sizes, _ in worlds("cp", seed=0):
        plan = Plan(**{axis: sizes[axis] for axis in ("pp", "dp", "cp", "tp")})
        theirs = generator(tp=plan.tp, ep=1, dp=plan.dp, pp=plan.pp, cp=plan.cp, order="tp-cp-ep-dp-pp")
        for token, axis in {"tp": "tp", "cp": "cp", "dp": "replicate", "pp": "pp"}.items():
            ours = {tuple(members(plan, axis, rank)) for rank in range(plan.ranks)}
            assert ours == set(map(tuple, theirs.get_ranks(token)))
