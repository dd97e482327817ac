"""Valid calls of ``tinydist.collectives``: on three ranks, and their costs on none."""

import torch
import torch.distributed as dist
from nonsense.calls import Call
from torch.distributed import ReduceOp

from tinydist import collectives
from tinydist.collectives import (
    autograd,
    chain,
    direct,
    doubling,
    halving,
    hierarchical,
    multi_ring,
    pairwise,
    reference,
    ring,
    star,
    star_in_chunks,
    tree,
)
from tinydist.hardware import Link

LINK = Link("link", 1e-6, 1e9)
SUM = ReduceOp.SUM


def row():
    return torch.arange(6.0)


def parts():
    return [torch.ones(2) for _ in range(3)]


def alone():
    groups = [dist.new_group([rank]) for rank in range(3)]
    return groups[dist.get_rank()]


def on_ranks(function, arguments):
    return Call(function, arguments, ranks=3, signed=True)


def cost(function, **arguments):
    return Call(function, lambda: dict(arguments))


HALVES = {"ring": ring, "direct": direct}
CALLS = {
    "Cost.seconds": Call(collectives.Cost([8], [1], [(1, 8)]).seconds, lambda: dict(link=LINK)),
    "part_sizes": cost(collectives.part_sizes, num_elements=10, parts=4),
    **{
        f"{library.__name__.split('.')[-1]}.all_reduce": on_ranks(
            library.all_reduce, lambda: dict(tensor=row(), op=SUM, group=None)
        )
        for library in (star, tree, ring, doubling, direct)
    },
    **{
        f"{library.__name__.split('.')[-1]}.all_reduce_cost": cost(
            library.all_reduce_cost, num_elements=10, ranks=4, itemsize=4
        )
        for library in (star, tree, ring, doubling, direct)
    },
    "star_in_chunks.all_reduce": on_ranks(
        star_in_chunks.all_reduce, lambda: dict(tensor=row(), op=SUM, group=None, chunks=2)
    ),
    "star_in_chunks.all_reduce_cost": cost(
        star_in_chunks.all_reduce_cost, num_elements=10, ranks=4, chunks=3, itemsize=4
    ),
    "halving.all_reduce": on_ranks(
        halving.all_reduce, lambda: dict(tensor=row(), op=SUM, group=None, first="farthest")
    ),
    "halving.all_reduce_cost": cost(halving.all_reduce_cost, num_elements=10, ranks=4, itemsize=4, first="farthest"),
    "multi_ring.all_reduce": on_ranks(
        multi_ring.all_reduce, lambda: dict(tensor=row(), per_node=3, op=SUM, group=None)
    ),
    "multi_ring.all_reduce_cost": cost(multi_ring.all_reduce_cost, num_elements=10, per_node=2, nodes=3, itemsize=4),
    **{
        f"{library.__name__.split('.')[-1]}.{name}_cost": cost(
            getattr(library, f"{name}_cost"), nbytes=10, ranks=4, root=1
        )
        for library in (star, tree)
        for name in ("broadcast", "reduce")
    },
    "star.broadcast": on_ranks(star.broadcast, lambda: dict(tensor=row(), src=1, group=None)),
    "star.reduce": on_ranks(star.reduce, lambda: dict(tensor=row(), dst=1, op=SUM, group=None)),
    "tree.broadcast": on_ranks(tree.broadcast, lambda: dict(tensor=row(), src=1, group=None)),
    "tree.reduce": on_ranks(tree.reduce, lambda: dict(tensor=row(), dst=1, op=SUM, group=None)),
    **{
        f"{name}.reduce_scatter": on_ranks(
            library.reduce_scatter, lambda: dict(output=torch.empty(2), parts=parts(), op=SUM, group=None)
        )
        for name, library in HALVES.items()
    },
    **{
        f"{name}.all_gather": on_ranks(
            library.all_gather, lambda: dict(parts=parts(), tensor=torch.ones(2), group=None)
        )
        for name, library in HALVES.items()
    },
    **{
        f"{name}.{half}_cost": cost(getattr(library, f"{half}_cost"), sizes=[4, 4, 8])
        for name, library in HALVES.items()
        for half in ("reduce_scatter", "all_gather")
    },
    "chain.broadcast": on_ranks(chain.broadcast, lambda: dict(tensor=row(), src=1, group=None, chunks=2)),
    "chain.broadcast_cost": cost(chain.broadcast_cost, num_elements=10, ranks=4, root=1, chunks=3, itemsize=4),
    "chain.best_chunks": cost(chain.best_chunks, nbytes=10**6, ranks=4, link=LINK),
    "pairwise.all_to_all": on_ranks(pairwise.all_to_all, lambda: dict(outputs=parts(), inputs=parts(), group=None)),
    "pairwise.all_to_all_cost": cost(pairwise.all_to_all_cost, sizes=[[1, 2], [3, 4]]),
    "hierarchical.all_reduce": on_ranks(
        hierarchical.all_reduce, lambda: dict(tensor=row(), inside=None, across=alone(), op=SUM)
    ),
    "hierarchical.all_reduce_cost": cost(
        hierarchical.all_reduce_cost, num_elements=10, per_node=2, nodes=3, itemsize=4
    ),
    "autograd.broadcast": on_ranks(autograd.broadcast, lambda: dict(tensor=row(), src=1, group=None)),
    "autograd.reduce": on_ranks(autograd.reduce, lambda: dict(tensor=row(), dst=1, group=None)),
    "autograd.scatter": on_ranks(autograd.scatter, lambda: dict(tensor=row(), src=1, dim=0, group=None)),
    "autograd.gather": on_ranks(autograd.gather, lambda: dict(tensor=row(), dst=1, dim=0, group=None)),
    "autograd.all_gather": on_ranks(autograd.all_gather, lambda: dict(tensor=row(), dim=0, group=None)),
    "autograd.reduce_scatter": on_ranks(autograd.reduce_scatter, lambda: dict(tensor=row(), dim=0, group=None)),
    "autograd.all_reduce": on_ranks(autograd.all_reduce, lambda: dict(tensor=row(), group=None)),
    "autograd.all_to_all": on_ranks(
        autograd.all_to_all,
        lambda: dict(tensor=row(), input_split_sizes=[2, 2, 2], output_split_sizes=[2, 2, 2], group=None),
    ),
    "reference.broadcast": Call(reference.broadcast, lambda: dict(tensors=parts(), root=1), signed=True),
    "reference.scatter": Call(reference.scatter, lambda: dict(parts=parts()), signed=True),
    "reference.gather": Call(reference.gather, lambda: dict(tensors=parts(), root=1), signed=True),
    "reference.reduce": Call(reference.reduce, lambda: dict(tensors=parts(), root=1, op=SUM), signed=True),
    "reference.all_gather": Call(reference.all_gather, lambda: dict(tensors=parts()), signed=True),
    "reference.reduce_scatter": Call(
        reference.reduce_scatter, lambda: dict(parts=[parts(), parts(), parts()], op=SUM), signed=True
    ),
    "reference.all_reduce": Call(reference.all_reduce, lambda: dict(tensors=parts(), op=SUM), signed=True),
    "reference.all_to_all": Call(reference.all_to_all, lambda: dict(parts=[parts(), parts(), parts()]), signed=True),
}


INSIDE = "a part of the algorithm"
REASONS = {
    name: INSIDE
    for name in (
        "star.others",
        "star_in_chunks.collect_and_return",
        "direct.exchange_with_all",
        "halving.halve",
        "halving.double",
        "halving.halve_and_double",
        "halving.in_order",
        "halving.halves_of",
        "doubling.exchange_all",
        "multi_ring.Ring",
        "multi_ring.orders",
        "multi_ring.pass_on",
        "tree.reaches",
        "autograd.Conjugates",
        "autograd.copied",
        "autograd.summed_on",
        "autograd.summed",
        "autograd.joined",
        "autograd.joined_on",
        "autograd.part_of_sum",
        "autograd.part_of_one",
        "autograd.exchanged",
        "autograd.equal_parts",
        "autograd.along",
    )
}
REASONS["Cost"] = REASONS["Cost.then"] = "what an algorithm's cost is given as"
