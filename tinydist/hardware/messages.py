"""Collectives as messages of the algorithms in costs.py, on two levels: rings in each node and across, trees, pairs.

    all_reduce                   a ring reduce-scatter in each node, a ring across, a ring all-gather in each node
    all_gather, reduce_scatter   a ring across, a ring in each node
    broadcast, reduce            binomial tree
    gather, scatter, all_to_all  as many steps as there are other ranks
    barrier                      dissemination

Every step waits for alpha, and then for its bytes. It is what our own collectives take on simulated ranks, and what is
assumed of links on which NCCL's algorithms are not known (a laptop's memory, PCIe, Ethernet).
"""

import math


def by_messages(what, nbytes, ranks, per_node, cluster):
    """Seconds of all latencies, and of all bytes."""
    return BY[what](nbytes, per_node, ranks // per_node, Links(per_node, ranks, cluster))


class Links:
    """Latency and seconds per byte of the links inside, and between, when all ranks send."""

    def __init__(self, per_node, ranks, cluster):
        near, far = None, cluster.inter_node if ranks > per_node else None
        if per_node > 1:
            near = cluster.link(0, 1)
        cards = max(1, cluster.cards * per_node // cluster.devices_per_node)
        self.share = math.ceil(per_node / cards)  # ranks to a card
        self.bus = near is not None and near.shape == "bus"
        self.near, self.far = ((link.latency, 1 / link.bandwidth) if link else (0.0, 0.0) for link in (near, far))
        self.latency = max(self.near[0], self.far[0])


def rings(rounds):
    def of(n, g, k, links):
        inside = rounds * (g - 1) * n / g * links.near[1] * (g if links.bus else 1)
        across = rounds * (k - 1) * n / g / k * links.far[1] * links.share
        return rounds * ((g - 1) * links.near[0] + (k - 1) * links.far[0]), inside + across

    return of


def tree(n, g, k, links):
    latency = transfer = 0.0
    reached = 1
    while reached < g * k:
        sending = min(reached, g * k - reached)
        if reached < g:
            latency += links.near[0] if reached + sending <= g else links.latency
            transfer += n * links.near[1] * (sending if links.bus else 1)
        else:
            latency += links.far[0]
            transfer += n * links.far[1] * links.share
        reached *= 2
    return latency, transfer


def star(n, g, k, links):
    part = n / (g * k)
    return (g * k - 1) * links.latency, part * max((g - 1) * links.near[1], g * (k - 1) * links.far[1])


def pairs(n, g, k, links):
    part = n / (g * k)
    inside = (g - 1) * links.near[1] * (g if links.bus else 1)
    return (g * k - 1) * links.latency, part * max(inside, g * (k - 1) * links.far[1] * links.share)


def message(n, g, k, links):
    latency, by_byte = links.far if k > 1 else links.near
    return latency, n * by_byte


def dissemination(n, g, k, links):
    return (g * k - 1).bit_length() * links.latency, 0.0


BY = {
    "all_reduce": rings(2), "reduce_scatter": rings(1), "all_gather": rings(1), "broadcast": tree, "reduce": tree,
    "gather": star, "scatter": star, "all_to_all": pairs, "send": message, "barrier": dissemination,
}  # fmt: skip
