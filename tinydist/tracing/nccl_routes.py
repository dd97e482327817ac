"""Routes of NCCL's algorithms: a collective is one leg, whose time is that of hardware/algorithms.py.

    NCCL Ring            each rank to the next of its node; between nodes through all cards at once
    NCCL Tree            a chain in each node, up and down; trees between the nodes
    NCCL NVLS, two-shot  each rank has 1/p to add up: all others send it theirs, and get the sum
    NCCL NVLSTree        the same inside each node, and trees between the nodes
    one-shot             everything from each rank to each
    all_to_all, gather   from each rank to whom it is for, all at once

Ports and cards are occupied in proportion to the bytes that pass them. Those with the most are busy as long as the
transfer lasts, so a collective alone takes what ``collective_time`` says, to the last digit. Where NCCL does not know
the links, or nodes have unlike numbers of ranks, routes.py has rings and trees of messages.
"""

from collections import defaultdict
from itertools import pairwise

from ..hardware.algorithms import known, timing
from .routes import Leg, by_node


def nccl_leg(transfer, cluster):
    """The only leg of a collective; None if it does not go by NCCL."""
    nodes = by_node(transfer.ranks, cluster.node_of)
    p, g = len(transfer.ranks), len(nodes[0])
    across = len({cluster.node_of(rank) for rank in transfer.ranks})
    if transfer.name == "message" or cluster.algorithm == "ring" or p == 1 or len(nodes) != across:
        return None
    if not known(cluster, p, g):
        return None
    size = size_of(transfer)
    time = timing(transfer.name, size, p, g, cluster)
    edges = edges_of(transfer, nodes, time.protocol if time.algorithm == "custom" else time.algorithm, size)
    load = load_of(edges, cluster)
    if transfer.name not in ("all_to_all", "gather", "scatter") and (longest := max(load.values(), default=0.0)):
        load = {resource: seconds / longest * time.transfer for resource, seconds in load.items()}
    return Leg(time.latency, load, edges)


def size_of(transfer):
    """As nccl-tests counts: the whole tensor."""
    if transfer.name == "barrier":
        return 0
    if transfer.name == "all_to_all":
        return max(transfer.nbytes.values(), default=0) * len(transfer.ranks)
    return transfer.nbytes * (len(transfer.ranks) if transfer.name in ("gather", "scatter") else 1)


def load_of(edges, cluster):
    """Seconds of each port and card, at the rate that NCCL reaches on it."""
    load = defaultdict(float)
    for (source, destination), nbytes in edges.items():
        reached = cluster.link(source, destination).reached
        for resource in cluster.resources(source, destination):
            load[resource] += nbytes / reached
    return dict(load)


def edges_of(transfer, nodes, algorithm, size):
    """(source, destination) -> bytes"""
    name, p = transfer.name, len(transfer.ranks)
    if name == "barrier":
        return {}
    if name == "all_to_all":
        return {(a, b): nbytes for (a, b), nbytes in transfer.nbytes.items() if a != b and nbytes}
    if name in ("gather", "scatter"):
        others = [rank for rank in transfer.ranks if rank != transfer.root]
        return {pair(rank, transfer.root, name): transfer.nbytes for rank in others}
    if name in ("broadcast", "reduce"):
        return chain(transfer, name)
    if algorithm in ("NCCL Tree", "NCCL NVLSTree"):
        return merged(inside(nodes, algorithm, size), between(nodes, size))
    if algorithm == "NCCL Ring":
        return ring(nodes, (2 if name == "all_reduce" else 1) * (p - 1) / p * size)
    each = size if name == "all_reduce" and algorithm == "one-shot" else size / p
    return everyone(transfer.ranks, each if algorithm == "one-shot" else 2 * each)


def pair(rank, root, name):
    return (rank, root) if name == "gather" else (root, rank)


def everyone(ranks, nbytes):
    return {(a, b): nbytes for a in ranks for b in ranks if a != b}


def merged(*maps):
    edges = defaultdict(float)
    for each in maps:
        for key, nbytes in each.items():
            edges[key] += nbytes
    return dict(edges)


def ring(nodes, sent):
    """``sent``: by each rank. Of g rings side by side each leaves the node from another rank."""
    g, k = len(nodes[0]), len(nodes)
    if k == 1:
        return {(rank, nodes[0][(i + 1) % g]): sent for i, rank in enumerate(nodes[0])}
    near = {(rank, node[(i + 1) % g]): sent * (g - 1) / g for node in nodes for i, rank in enumerate(node) if g > 1}
    far = {(rank, nodes[(j + 1) % k][i]): sent / g for j, node in enumerate(nodes) for i, rank in enumerate(node)}
    return near | far


def inside(nodes, algorithm, size):
    """Of a node: up a chain and down again, or each with each."""
    if algorithm == "NCCL NVLSTree":
        return merged(*(everyone(node, 2 * size / len(node)) for node in nodes))
    hops = [hop for node in nodes for hop in pairwise(node)]
    return {hop: size for a, b in hops for hop in ((a, b), (b, a))}


def between(nodes, size):
    """Of two binary trees, one the mirror image of the other; each rank sends its share of the bytes up and down."""
    edges, k, g = defaultdict(float), len(nodes), len(nodes[0])
    for i in range(g):
        for order in (nodes, nodes[::-1]):
            for j in range(1, k):
                child, parent = order[j][i], order[(j - 1) // 2][i]
                edges[child, parent] += size / g / 2
                edges[parent, child] += size / g / 2
    return dict(edges)


def chain(transfer, name):
    """From the root through all ranks, chunk by chunk; a reduce is the same backwards."""
    start = transfer.ranks.index(transfer.root)
    order = transfer.ranks[start:] + transfer.ranks[:start]
    hops = pairwise(order)
    return {(a, b) if name == "broadcast" else (b, a): transfer.nbytes for a, b in hops}
