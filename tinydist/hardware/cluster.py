"""A cluster: nodes x devices, the link inside a node, and network cards to the other nodes.

    node 0                          node 1
    rank 0   1   2   3              rank 4   5   6   7          device = one rank
         |   |   |   |                   |   |   |   |
       [   intra_node  ]               [   intra_node  ]        a port, wires or a bus: Link.shape
         |   |   |   |                   |   |   |   |
       card card card card  inter_node card card card card      fewer cards than devices: they are shared

Ranks fill one node after the other, as torchrun places them. A node is what ``intra_node`` joins: a machine, or a rack
whose machines share one NVLink domain.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..rules import count, each_of, flag, must, one_of, part, positive, stated, validate, whole, within
from .algorithms import ALGORITHMS
from .devices import A100_80GB, B200, CORES, GB200, H100, INSTANT, LAPTOP_CPU, Device, find_device
from .links import (
    EFA_4,
    ETHERNET_100,
    INFINIBAND_HDR,
    INFINIBAND_NDR,
    NVSWITCH_A100,
    NVSWITCH_B200,
    NVSWITCH_H100,
    PCIE_4,
    ROCE_400,
    SHARED_MEMORY,
    Link,
    find_link,
)
from .lookup import look_up
from .tiles import Tiles


def below_1(value):
    """a number >= 0 and < 1, the fraction of speed that is lost"""
    return part(value) and value < 1


some_algorithm = stated(f"None or one of {', '.join(ALGORITHMS)}", lambda it: it is None or one_of(ALGORITHMS)(it))


class Resource(NamedTuple):
    """A resource (link, port or card) that a message occupies while it is transferred; concurrent messages share it."""

    kind: str  # 'port out', 'port in', 'wire', 'bus', 'card out', 'card in'
    node: int
    number: int | tuple[int, int]  # the local rank, the wire's two local ranks, the card; 0 for a bus


@dataclass(frozen=True)
class Cluster:
    device: Device  # or its name
    devices_per_node: int
    intra_node: Link | None = None  # or its name; a node of one device needs none
    nodes: int = 1
    inter_node: Link | None = None  # or its name: what one network card has; a single node needs none
    cards_per_node: int | None = None  # network cards; None is one for each device
    ring_through_one_card: bool = False  # NCCL finds no ring through all cards of a group's ranks in a node
    contention: float = 0.0  # the fraction of matmul speed that a device loses while a collective runs on it
    algorithm: str | None = (
        None  # of collectives (algorithms.py); None: NCCL's choice if the links are NCCL's, or rings
    )

    def __post_init__(self):
        for field, find in [("device", find_device), ("intra_node", find_link), ("inter_node", find_link)]:
            given = getattr(self, field)
            object.__setattr__(self, field, given if given is None and field != "device" else find(given))
        self._check()

    def _check(self):
        for name in ("nodes", "devices_per_node"):
            must("Cluster", name, count, getattr(self, name))
        if self.devices_per_node > 1 and self.intra_node is None:
            raise ValueError(f"Cluster: devices_per_node ({self.devices_per_node}) > 1 requires intra_node, got None")
        if self.nodes > 1 and self.inter_node is None:
            raise ValueError(f"Cluster: nodes ({self.nodes}) > 1 requires inter_node, got None")
        if self.inter_node and self.inter_node.shape != "switch":
            raise ValueError(f"Cluster: inter_node must be a network, got {self.inter_node}, a {self.inter_node.shape}")
        must("Cluster", "cards_per_node", within(1, self.devices_per_node), self.cards)  # a device sends through one
        must("Cluster", "ring_through_one_card", flag, self.ring_through_one_card)
        must("Cluster", "contention", below_1, self.contention)
        must("Cluster", "algorithm", some_algorithm, self.algorithm)

    def __str__(self):
        name = f"{self.nodes} x {self.devices_per_node} {self.device}"
        name += f", {self.intra_node} inside" if self.devices_per_node > 1 else ""
        return name + (f", {self.inter_node} between" if self.nodes > 1 else "")

    # Where ranks are.

    @property
    def size(self) -> int:
        """The number of devices, and so of ranks that have a place."""
        return self.nodes * self.devices_per_node

    @property
    def cards(self) -> int:
        """Network cards of a node."""
        return self.devices_per_node if self.cards_per_node is None else self.cards_per_node

    @validate(ranks=count)
    def check_ranks(self, ranks):
        if ranks > self.size:
            places = f"{self.nodes} node{'s' * (self.nodes > 1)} x {self.devices_per_node} devices = {self.size}"
            raise ValueError(f"the cluster has {places}, but {ranks} ranks were requested")

    def node_of(self, rank) -> int:
        if not (whole(rank) and rank < self.size):
            raise ValueError(f"the cluster has ranks 0 to {self.size - 1}, but rank {rank} was requested")
        return rank // self.devices_per_node

    def local_rank(self, rank) -> int:
        return rank - self.node_of(rank) * self.devices_per_node

    def card_of(self, rank) -> int:
        """The network card, within its node, that a rank sends and receives through."""
        return self.local_rank(rank) * self.cards // self.devices_per_node

    def pod(self, nodes) -> "Cluster":
        """As many of these nodes."""
        return replace(self, nodes=nodes)

    def with_algorithm(self, algorithm) -> "Cluster":
        """This cluster with collectives by this algorithm: ``"ring"``, ``"NCCL Tree"``, ``"fastest"`` (algorithms.py).
        Where it cannot be used, they go by NCCL's choice."""
        return replace(self, algorithm=algorithm)

    @validate(matmul=positive, memory=positive, wire=positive, tiles=Tiles)
    def at(self, matmul=1.0, memory=1.0, wire=1.0, contention=None, tiles=None) -> "Cluster":
        """This cluster at achievable rates: fractions of peak FLOP/s, memory bandwidth and link bandwidth.

        ``contention``: the fraction of matmul throughput lost while a collective runs; 0 by default.
        Measured: 0.16 on the mean of A100s, H100s, MI210s, MI250s, 0.29 at most (computing took 18.9 %, and 40 %,
        longer while it overlapped: Lee et al. 2025, Characterizing Compute-Communication Overlap in GPU-Accelerated
        Distributed Deep Learning). NCCL's kernels take multiprocessors: 24 of an H100's 132, say, are 0.18.

        ``tiles``: for example ``TILES["A100"]``. Then only the best matmul shape reaches ``matmul``; others are slower
        due to tile and wave quantization (tiles.py).
        """
        intra, inter = (link and link.at(wire) for link in (self.intra_node, self.inter_node))
        contention = self.contention if contention is None else contention
        device = self.device.at(matmul, memory, tiles)
        return replace(self, device=device, intra_node=intra, inter_node=inter, contention=contention)

    @property
    def communication_alone(self) -> "Cluster":
        """The same links, with infinitely fast devices: communication time only."""
        return replace(self, device=replace(INSTANT, name=f"{self.device}, messages alone"))

    # What joins them.

    def link(self, source, destination) -> Link:
        """The link between two ranks, without other traffic."""
        home, away = self.node_of(source), self.node_of(destination)
        if source == destination:
            raise ValueError(f"link: source and destination must differ, both are rank {source}")
        if home != away:
            return self.inter_node
        if self.intra_node.shape == "mesh":
            return self.intra_node.shared_by(self.devices_per_node - 1)
        return self.intra_node

    def resources(self, source, destination) -> tuple[Resource, ...]:
        """The resources that a message between two ranks occupies."""
        shape = self.link(source, destination).shape
        home, away = self.node_of(source), self.node_of(destination)
        if home != away:
            cards = self.card_of(source), self.card_of(destination)
            return Resource("card out", home, cards[0]), Resource("card in", away, cards[1])
        local = self.local_rank(source), self.local_rank(destination)
        if shape == "bus":
            return (Resource("bus", home, 0),)
        if shape == "mesh":
            return (Resource("wire", home, local),)
        return Resource("port out", home, local[0]), Resource("port in", home, local[1])

    @validate(ranks=each_of(whole))
    def ring_link(self, ranks) -> Link | None:
        """The bottleneck of a ring through these ranks in this order: its slowest link."""
        ring = [self.link(a, b) for a, b in zip(ranks, [*ranks[1:], *ranks[:1]]) if a != b]
        if not ring:
            return None
        slowest = min(ring, key=lambda link: link.bandwidth)
        return replace(slowest, latency=max(link.latency for link in ring))

    @property
    def inter_node_shared(self) -> Link | None:
        """The link between nodes, for each rank, while all ranks of a node send at once."""
        return self.inter_node and self.inter_node.shared_by(math.ceil(self.devices_per_node / self.cards))


# Presets. ``H100_NODE.pod(16)`` is a cluster of sixteen such nodes.

# Cards: a DGX A100 has 8 of 200 Gbit/s (data sheet, recalled), a DGX H100 and a DGX B200 8 of 400 Gbit/s (NVIDIA, DGX
# BasePOD reference architecture, read).
A100_NODE = Cluster(A100_80GB, 8, NVSWITCH_A100, inter_node=INFINIBAND_HDR)
H100_NODE = Cluster(H100, 8, NVSWITCH_H100, inter_node=INFINIBAND_NDR)
H100_ROCE_NODE = Cluster(H100, 8, NVSWITCH_H100, inter_node=ROCE_400)
B200_NODE = Cluster(B200, 8, NVSWITCH_B200, inter_node=INFINIBAND_NDR)
H100_POD = H100_NODE.pod(4)
B200_POD = B200_NODE.pod(4)
B200_EFA_POD = replace(B200_POD, inter_node=EFA_4)
# A rack: NVLink joins all 72 GPUs of its 18 trays, each with 1.8 TB/s of both directions (NVIDIA on the GB200 NVL72,
# secondary). A node here is what NVLink joins, so the rack is one. A card of 400 Gbit/s for each GPU.
NVL72 = Cluster(GB200, 72, NVSWITCH_B200, inter_node=INFINIBAND_NDR)
TWO_BY_FOUR = Cluster(A100_80GB, 4, NVSWITCH_A100, nodes=2, inter_node=INFINIBAND_HDR)
PCIE_BOX = Cluster(A100_80GB, 4, PCIE_4, inter_node=ETHERNET_100, cards_per_node=1)
LAPTOP = Cluster(LAPTOP_CPU.shared_by(CORES), CORES, SHARED_MEMORY)

CLUSTERS = {
    "laptop": LAPTOP,
    "PCIe box": PCIE_BOX,
    "2 x 4": TWO_BY_FOUR,
    "A100 node": A100_NODE,
    "H100 node": H100_NODE,
    "H100 pod": H100_POD,
    "H100 RoCE node": H100_ROCE_NODE,
    "B200 node": B200_NODE,
    "B200 pod": B200_POD,
    "B200 EFA pod": B200_EFA_POD,
    "GB200 NVL72": NVL72,
}


def find_cluster(name) -> Cluster:
    """``'H100 pod'`` and so on; a Cluster is returned as it is."""
    return look_up("cluster", CLUSTERS, name)


@validate(ranks=count)
def default_cluster(ranks=8) -> Cluster:
    """Nodes of 8 A100s, as many as the ranks need."""
    return A100_NODE.pod(max(1, math.ceil(ranks / A100_NODE.devices_per_node)))
