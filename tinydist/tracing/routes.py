"""Routes: the messages of each collective, step by step, as rings and trees.

The virtual clock goes by them where NCCL's algorithms are not known (nccl_routes.py has those), on a cluster
``with_algorithm("ring")``, and for single messages.

A route is a list of phases, one after another. A phase counts its steps, each of which costs a latency, and the bytes
from each source to each destination while it lasts:

    all_reduce                  ring; over several nodes a reduce-scatter inside, a ring across, an all-gather inside
    all_gather, reduce_scatter  ring; over several nodes across and inside
    broadcast, reduce           binomial tree
    gather, scatter             each with the root
    all_to_all                  pairwise
    barrier                     dissemination

Costs and sources: hardware/costs.py and messages.py.
"""

from collections import defaultdict
from typing import NamedTuple


class Phase(NamedTuple):
    steps: int
    edges: dict  # (source, destination) -> bytes


class Leg(NamedTuple):
    """A phase of a transfer, put on a cluster."""

    latency: float  # seconds before its bytes pass
    load: dict  # resource -> seconds that its bytes take on it alone
    edges: dict  # (source, destination) -> bytes


def leg(phase, ranks, cluster):
    latency, load = 0.0, defaultdict(float)
    for (source, destination), nbytes in phase.edges.items():
        if source != destination:
            link = cluster.link(source, destination)
            latency = max(latency, link.latency)
            for resource in cluster.resources(source, destination):
                load[resource] += nbytes / link.bandwidth
    if phase.steps and not phase.edges:
        latency = cluster.ring_link(ranks).latency
    return Leg(phase.steps * latency, dict(load), phase.edges)


def route(transfer, node_of):
    """The phases of a ``trace.Transfer`` on a cluster in which rank r stands in node ``node_of(r)``."""
    return ROUTES[transfer.name](transfer, node_of)


def message(transfer, node_of):
    source, destination = transfer.ranks
    return [Phase(1, {(source, destination): transfer.nbytes})]


def all_reduce(transfer, node_of):
    nodes = by_node(transfer.ranks, node_of)
    inside = rings(nodes, transfer.nbytes)
    return inside + rings(across(nodes), transfer.nbytes / len(nodes[0]), rounds=2) + inside


def reduce_scatter(transfer, node_of):
    """``nbytes``: the whole input of a rank."""
    nodes = by_node(transfer.ranks, node_of)
    return rings(nodes, transfer.nbytes) + rings(across(nodes), transfer.nbytes / len(nodes[0]))


def all_gather(transfer, node_of):
    """``nbytes``: the whole output of a rank."""
    return reduce_scatter(transfer, node_of)[::-1]


def broadcast(transfer, node_of):
    """From the root to one, from two to two more, from four to four more."""
    start = transfer.ranks.index(transfer.root)
    order = transfer.ranks[start:] + transfer.ranks[:start]
    reached, phases = 1, []
    while reached < len(order):
        pairs = zip(order[:reached], order[reached:])
        phases.append(Phase(1, {pair: transfer.nbytes for pair in pairs}))
        reached *= 2
    return phases


def reduce(transfer, node_of):
    return backwards(broadcast(transfer, node_of))


def gather(transfer, node_of):
    """``nbytes``: the piece of one rank."""
    others = [rank for rank in transfer.ranks if rank != transfer.root]
    return [Phase(len(others), {(rank, transfer.root): transfer.nbytes for rank in others})]


def scatter(transfer, node_of):
    return backwards(gather(transfer, node_of))


def backwards(phases):
    return [Phase(each.steps, {(b, a): n for (a, b), n in each.edges.items()}) for each in phases[::-1]]


def all_to_all(transfer, node_of):
    """``nbytes``: a dict of what each rank sends to each."""
    edges = {(a, b): nbytes for (a, b), nbytes in transfer.nbytes.items() if a != b and nbytes}
    return [Phase(len(transfer.ranks) - 1, edges)]


def barrier(transfer, node_of):
    return [Phase((len(transfer.ranks) - 1).bit_length(), {})]


OF_ALL = all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all, barrier
ROUTES = {each.__name__: each for each in (message, *OF_ALL)}


def by_node(ranks, node_of):
    """``ranks`` as one list for each node, if every node has as many; else all of them as one."""
    nodes = {}
    for rank in ranks:
        nodes.setdefault(node_of(rank), []).append(rank)
    sizes = {len(members) for members in nodes.values()}
    return list(nodes.values()) if len(sizes) == 1 else [list(ranks)]


def across(nodes):
    """The first ranks of all nodes, the second ones, and so on."""
    return list(zip(*nodes, strict=True))


def rings(groups, nbytes, rounds=1):
    """A ring in each group, at the same time: p-1 steps a round, in which each rank sends 1/p to the next."""
    p = len(groups[0])
    if p == 1:
        return []
    share = rounds * (p - 1) * nbytes / p
    edges = {(rank, group[(i + 1) % p]): share for group in groups for i, rank in enumerate(group)}
    return [Phase(rounds * (p - 1), edges)]
