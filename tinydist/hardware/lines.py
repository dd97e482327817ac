"""Each way to do a collective is a line, latency + n/bandwidth: by algorithm and protocol, for ranks at a place.

    latency      a kernel's start, NCCL's base, and the steps that follow one another, inside and between nodes
    bandwidth    what all channels together reach on the slowest link, by what each rank must send of n

algorithms.py chooses one of them; sources and reasons of the numbers are there and in fabrics.py.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from . import nccl
from .bus_bandwidth import BUS_FACTORS
from .fabrics import NETWORKS, NODE_FABRICS

US = 1e-6
CPU = "Intel"  # of all hosts: what NCCL counts for AMD's was not held against measurements
KERNEL = 2.9 * US  # 32 KiB on 8 H200s take 18.2 us: NCCL's model of LL counts 15.0, and their bytes 0.3
# Steps of a ring with protocol Simple take 10.7, 6.3 and 5.2 us on A100, H100 and B200 (the latency of the large rows),
# where NCCL's model has 3.4 for all: the rest is 1.5 MB at the pace of the ring, or 24 channels x 64 KiB.
CHUNK = 1.5e6
# On 8 H100s: 32 kB in 7.8 us (sglang), 512 KiB in 15 and 128 MiB in 923 us (torch's two_shot_all_reduce).
ONE_SHOT, TWO_SHOT, TWO_SHOT_REACHED = 6.5 * US, 11.5 * US, 258 / 367
# vLLM's custom kernels without a CUDA graph, on 2, 4 and 8 H100s: each GPU copies and reads at 62 GB/s
# (sgl-project/sglang#2904, read: 11.8 us of 32 kB, 24.1 of 256 kB, 45.0 of 1 MiB on 8).
CUSTOM, CUSTOM_TWO, CUSTOM_REACHED = 9 * US, 17 * US, 62 / 367
NVLS_TREE_REACHED = 0.85  # 160 of 188 GB/s: four nodes of B200, 128 and 256 MiB
MOST_WITHOUT_NVLS = 4  # ranks: on H200, NCCL takes NVLS from 5 on


class Line(NamedTuple):
    """seconds = latency + n/bandwidth"""

    algorithm: str
    protocol: str
    latency: float
    bandwidth: float  # of the tensor; a tree's before its correction by size

    def transfer(self, nbytes):
        if self.algorithm == "NCCL Tree":
            return nbytes / (self.bandwidth * nccl.tree_correction(nbytes, self.protocol))
        return nbytes / self.bandwidth

    def seconds(self, nbytes):
        return self.latency + self.transfer(nbytes)

    def timing(self, nbytes):
        return Timing(self.algorithm, self.protocol, self.latency, self.transfer(nbytes))


class Timing(NamedTuple):
    algorithm: str
    protocol: str
    latency: float  # seconds before bytes arrive
    transfer: float  # seconds that they take

    @property
    def seconds(self):
        return self.latency + self.transfer


@dataclass(frozen=True)
class Place:
    """Ranks on a cluster, as many in each node; ``per_node`` of them use their share of its cards."""

    ranks: int
    per_node: int
    cluster: object

    @property
    def nodes(self):
        return self.ranks // self.per_node

    @property
    def inside(self):
        return NODE_FABRICS[self.cluster.intra_node.fabric]

    @property
    def slowed(self):
        """What a link has left of what it could reach: 1, or less by ``cluster.at(wire=0.5)``."""
        link = self.cluster.intra_node
        return link.reached / (self.inside.reached * link.data_sheet)

    @property
    def hop(self):
        return NETWORKS[self.cluster.inter_node.fabric].latency

    @property
    def egress(self):
        """Bytes/s that leave a node, through the cards of these ranks."""
        cards = self.cluster.cards * self.per_node / self.cluster.devices_per_node
        return max(1.0, cards) * self.cluster.inter_node.reached

    @property
    def ring_egress(self):
        """The same, of a ring or a tree."""
        return self.cluster.inter_node.reached if self.cluster.ring_through_one_card else self.egress

    def bus(self, protocol):
        """Bytes/s of a ring."""
        own = {"LL": self.inside.ll, "LL128": self.inside.ll128}
        bus = own[protocol] * self.slowed if protocol in own else self.cluster.intra_node.reached
        if self.nodes == 1:
            return bus
        size = min(self.nodes, 3) - 1
        ll128 = self.channels * nccl.RING_LL128[self.inside.generation][size]
        wire = self.ring_egress
        ll = min(wire / 2, nccl.LL_OVER_NODES[CPU][size - 1])
        out = {"LL": ll, "LL128": min(0.92 * wire, ll128), "Simple": wire}
        return min(bus, out[protocol])

    @property
    def channels(self):
        """Over nodes: a channel for each card."""
        return max(1, self.cluster.cards * self.per_node // self.cluster.devices_per_node)

    def step(self, algorithm, protocol):
        """Seconds from one GPU of a node to the next."""
        if protocol == "LL":
            return self.inside.step
        chunk = CHUNK / self.cluster.intra_node.reached if (algorithm, protocol) == ("ring", "Simple") else 0.0
        return nccl.STEP["NVLink"][algorithm][protocol] + chunk

    # Lines.

    def rings(self, what):
        rounds = 2 if what == "all_reduce" else 1
        crossing = rounds * (self.nodes - 1)
        steps = rounds * (self.ranks - 1) - crossing
        for protocol in nccl.PROTOCOLS:
            step, between = self.step("ring", protocol), 0.0
            if crossing:
                step = max(step, nccl.POST[CPU][protocol])
                alone = "tree" if self.per_node == 1 else "ring"
                between = crossing * (nccl.STEP["network"][alone][protocol] + self.hop)
            latency = KERNEL + nccl.BASE["ring"][protocol] + steps * step + between
            yield Line("NCCL Ring", protocol, latency, self.bus(protocol) / BUS_FACTORS[what](self.ranks))

    def trees(self):
        wire, ll = self.cluster.intra_node.reached, self.inside.ll * self.slowed
        size, generation, ll128 = min(self.nodes, 3) - 1, self.inside.generation, math.inf
        if size:
            # Over two nodes NCCL takes what NVLink carries (bwIntra): its search raises it up to twice the cards' pace
            # (nccl@5067397c: tuning.cc, "nNodes <= 2"; search.cc, "increase bwIntra for trees"; read).
            out = self.ring_egress * (2 if self.nodes == 2 else 1)
            wire, ll = min(wire, out), nccl.LL_OVER_NODES[CPU][size - 1]
            ll128 = self.channels * nccl.TREE_LL128[generation][size]
        wire = min(0.92 * wire, self.channels * nccl.TREE[generation][size] if size else math.inf)
        part = 120 / 128 if size else 7 / 9
        bandwidth = {"LL": min(wire / 3.8, ll), "LL128": min(part * wire, ll128), "Simple": wire}
        for protocol in nccl.PROTOCOLS:
            up = (self.per_node - 1) * self.step("tree", protocol)
            if size:
                up += (self.nodes - 1).bit_length() * (nccl.STEP["network"]["tree"][protocol] + self.hop)
            latency = KERNEL + nccl.BASE["tree"][protocol] + 2 * up
            yield Line("NCCL Tree", protocol, latency, bandwidth[protocol] / 2)

    def switches(self):
        inside = self.inside
        if inside.nvls is None or self.per_node <= MOST_WITHOUT_NVLS:
            return
        if self.nodes == 1:
            yield Line("NCCL NVLS", "Simple", inside.nvls_latency, inside.nvls * self.slowed)
            return
        up = (self.nodes - 1).bit_length() * (nccl.NVLS_TREE_STEP + self.hop)
        through_cards = NVLS_TREE_REACHED * self.egress / (2 if self.nodes > 2 else 1)
        yield Line("NCCL NVLSTree", "Simple", nccl.NVLS_STEP + 2 * up, min(inside.nvls * self.slowed, through_cards))

    def exchanges(self, what):
        """Each pair of ranks at once: all_to_all, gather, scatter, or one message."""
        p, near = self.ranks, self.cluster.intra_node.reached
        latency = KERNEL + nccl.BASE["ring"]["Simple"] + nccl.STEP["NVLink"]["ring"]["Simple"]
        if self.nodes == 1:
            yield Line("NCCL", "Simple", latency, near / BUS_FACTORS[what](p))
            return
        far = (p - self.per_node) / p if what != "send" else 1.0
        near_part = (self.per_node - 1) / p / near if what != "send" else 0.0
        card = self.egress / self.per_node if what == "all_to_all" else self.cluster.inter_node.reached
        latency += nccl.STEP["network"]["ring"]["Simple"] + self.hop
        yield Line("NCCL", "Simple", latency, 1 / max(far / card, near_part))

    def direct(self, what):
        p, bus = self.ranks, self.cluster.intra_node.reached
        if self.nodes > 1 or what not in ("all_reduce", "all_gather", "reduce_scatter"):
            return
        read = p - 1 if what == "all_reduce" else (p - 1) / p
        yield Line("one-shot", "direct", ONE_SHOT, bus / read)
        if what == "all_reduce":
            sent = BUS_FACTORS[what](p)
            yield Line("two-shot", "direct", TWO_SHOT, TWO_SHOT_REACHED * bus / sent)
            yield Line("custom", "one-shot", CUSTOM, CUSTOM_REACHED * bus / read)
            yield Line("custom", "two-shot", CUSTOM_TWO, CUSTOM_REACHED * bus / sent)
            if self.inside.nvls and p > MOST_WITHOUT_NVLS:
                yield Line("symmetric", "direct", self.inside.symmetric_latency, self.inside.nvls * self.slowed)

    def lines(self, what):
        """All ways that there are."""
        if what in ("all_to_all", "gather", "scatter", "send"):
            return list(self.exchanges(what))
        lines = [*self.rings(what), *self.direct(what)]
        return [*lines, *self.trees(), *self.switches()] if what == "all_reduce" else lines
