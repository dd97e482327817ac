"""HSDP: gradients reduced inside of nodes, and their shards between nodes; and the norm of all."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tinydist.lab.author import Bytes, Case, Own, Target, Values, Waits, Wrong, exercise, mistake

from .chapter import SOLVED

INSIDE = "dist.reduce_scatter_single(shard, gradient.float(), group=inside)"
ACROSS = "dist.all_reduce(shard, group=across)"
SQUARE = "dist.all_reduce(square, group=inside)"


def case(nodes, per_node, count, dtype=torch.float32):
    def arguments(rank):
        generator = torch.Generator().manual_seed(rank)
        return torch.randn(count, generator=generator).to(dtype), nodes, per_node

    about = f"{nodes} nodes of {per_node}, {count} numbers of {str(dtype).removeprefix('torch.')}"
    return Case(nodes * per_node, arguments, about, facts=per_node)


def test_cases():
    yield case(2, 3, 12)  # nodes, ranks of a node, and ranks by hand are three numbers
    yield case(2, 4, 24)
    yield case(3, 2, 12)
    yield case(2, 3, 12, torch.bfloat16)
    yield case(3, 2, 18, torch.bfloat16)
    yield case(2, 1, 5)
    yield case(1, 3, 9)
    yield case(1, 1, 6)


def train(answer, gradient, nodes, per_node):
    mesh = init_device_mesh("cpu", (nodes, per_node), mesh_dim_names=("across", "inside"))
    found = answer(gradient, mesh.get_group("inside"), mesh.get_group("across"))
    if not (isinstance(found, tuple | list) and len(found) == 2):
        raise Wrong(f"on rank {dist.get_rank()} it returned {type(found).__name__}, where (shard, norm) is right")
    shard, norm = found
    return {"the shard": shard, "the norm": norm.reshape(()) if one_number(norm) else norm}


def one_number(norm):
    """Of shape [] or [1]."""
    return isinstance(norm, torch.Tensor) and norm.numel() == 1


class Leaving(Target):
    """Bytes to other nodes, from each rank."""

    name = "to other nodes"

    def seen(self, trial):
        if trial.error is not None:
            return None
        per_node = trial.case.facts
        return [
            round(sum(nbytes for to, nbytes in enumerate(row) if to // per_node != rank // per_node))
            for rank, row in enumerate(trial.run.traffic)
        ]

    def judge(self, exercise, trial, right):
        mine, its = self.seen(trial), self.seen(right)
        if mine != its:
            rank = next(rank for rank, nbytes in enumerate(mine) if nbytes != its[rank])
            raise Wrong(
                f"rank {rank} sends {mine[rank]:,} bytes to other nodes, where {its[rank]:,} are right: reduce inside "
                "of the node first, so that only shards travel between nodes"
            )


@exercise(
    title="Reduce inside of nodes first (HSDP)",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    program=train,
    targets=[
        Waits("whatever is started is waited for"),
        Own("neither tinydist.zero nor torch's FSDP", "use the collectives of torch.distributed", SOLVED),
        Values(
            "this rank's shard of the mean over all ranks, in fp32, and the norm of the mean; 1 to 3 nodes of 1 to 4 "
            "ranks; gradients in 32 and in 16 bits",
            scratch=True,
        ),
        Leaving("2(n-1)/n of a shard to other nodes, on n nodes, in fp32"),
        Bytes(
            "a reduce-scatter inside of the node, an all-reduce of the shard between nodes, and a number for the norm"
        ),
    ],
    mistakes=[
        mistake(
            "The mean is that over the ranks of one node: its replicas in other nodes have had other batches",
            ACROSS,
            "pass",
        ),
        mistake(
            "It is divided by the ranks of a node alone: the mean is over all ranks of all nodes",
            "shard /= dist.get_world_size()",
            "shard /= dist.get_world_size(inside)",
        ),
        mistake(
            "It is divided by the number of nodes alone: the mean is over all ranks of all nodes",
            "shard /= dist.get_world_size()",
            "shard /= dist.get_world_size(across)",
        ),
        mistake(
            "Both sums, inside of the node and between nodes, are in the 16 bits of the gradients: make them fp32 "
            "before they travel",
            INSIDE,
            "low = gradient.new_empty(len(shard))\n    dist.reduce_scatter_single(low, gradient, group=inside)",
            ACROSS,
            "dist.all_reduce(low, group=across)\n    shard.copy_(low)",
        ),
        mistake(
            "The gradients are added up in their own 16 bits: make them fp32 before they travel",
            INSIDE,
            "low = gradient.new_empty(len(shard))\n    dist.reduce_scatter_single(low, gradient, group=inside)\n"
            "    shard.copy_(low)",
        ),
        mistake(
            "The norm is that of the own shard: the other shards are in this node",
            SQUARE,
            "pass",
        ),
        mistake(
            "Each number counts once for each node: a node has all shards, so the squares of one node are enough",
            SQUARE,
            "dist.all_reduce(square)",
        ),
        mistake(
            "Norms are added up, and not their squares: add squares, and take the root of the sum",
            "square = shard.square().sum()",
            "square = shard.square().sum().sqrt()",
            "square.sqrt()",
            "square",
        ),
    ],
    hints=[
        "Which ranks have the other shards of this node's copy? Those of `inside`. Which ranks have the same shard? "
        "Those of `across`.",
        "Reduce-scatter over `inside`, in fp32: a rank has its shard of the node's sum. What is missing to the sum of "
        "all ranks is at the ranks of `across`: an all-reduce, of the shard alone.",
        "For the norm, each number must count once. The shards of one node are all numbers: add up their squares over "
        "`inside`.",
    ],
    why="This is FSDP1's HYBRID_SHARD and fully_shard on a mesh of two dimensions: between nodes travel shards, and "
    "layers wait for nobody outside. A norm over all ranks would count each number once for each node, and clip too "
    "early; the losses would look right.",
)
def hybrid_gradient(gradient, inside, across):
    """Reduce ``gradient`` as HSDP does: each node shards it over its ranks, and the nodes are replicas.

    ``gradient`` is this rank's own, flat, of float32, or of bfloat16 in some worlds; the ranks of a node divide it.
    ``inside`` is the group of the ranks of this node, ``across`` that of the ranks with the same place in other nodes.
    Return (shard, norm): this rank's shard, its part by its place in ``inside``, of the mean over all ranks of all
    nodes, added up in fp32; and the norm of the whole mean gradient, a tensor of one number, the same on all ranks.
    Between nodes only shards should travel.
    """
    shard = torch.empty(len(gradient) // dist.get_world_size(inside))
    # ? The shard of the mean over all ranks: inside of the node first.
    dist.reduce_scatter_single(shard, gradient.float(), group=inside)
    dist.all_reduce(shard, group=across)
    shard /= dist.get_world_size()
    # ? The norm of all shards: each number counts once.
    square = shard.square().sum()
    dist.all_reduce(square, group=inside)
    return shard, square.sqrt()
