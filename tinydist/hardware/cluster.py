"""A cluster: nodes x devices, the link inside a node, and network cards to the other nodes.

    node 0                          node 1
    rank 0   1   2   3              rank 4   5   6   7          device = one rank
         |   |   |   |                   |   |   |   |
       [     inside    ]               [     inside    ]        a port, wires or a bus: Link.shape
         |   |   |   |                   |   |   |   |
       card card card card  between    card card card card      fewer cards than devices: they are shared

Ranks fill one node after the other, as torchrun places them. A node is what ``inside`` joins: a machine, or a rack
whose machines share one NVLink domain.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..rules import count, each_of, part, positive, takes, whole
from .devices import INSTANT, Device, find_device
from .links import Link, find_link
from .tiles import Tiles


class Resource(NamedTuple):
    """A thing that a message holds while its bytes pass, and that others wait for."""

    kind: str  # 'port out', 'port in', 'wire', 'bus', 'card out', 'card in'
    node: int
    number: int | tuple[int, int]  # the local rank, the wire's two local ranks, the card; 0 for a bus


@dataclass(frozen=True)
class Cluster:
    device: Device  # or its name
    devices_per_node: int
    inside: Link | None = None  # or its name; a node of one device needs none
    nodes: int = 1
    between: Link | None = None  # or its name: what one network card has; a single node needs none
    cards_per_node: int | None = None  # network cards; None is one for each device
    contention: float = 0.0  # the part of the speed of products that a device loses while a collective runs on it

    def __post_init__(self):
        for field, find in [("device", find_device), ("inside", find_link), ("between", find_link)]:
            given = getattr(self, field)
            object.__setattr__(self, field, given if given is None and field != "device" else find(given))
        self._check()

    def _check(self):
        for what, given in [("nodes", self.nodes), ("devices per node", self.devices_per_node)]:
            if not count(given):
                raise ValueError(f"a cluster needs 1 or more {what}, got {given}")
        if self.devices_per_node > 1 and self.inside is None:
            raise ValueError(f"a node of {self.devices_per_node} devices needs a link inside, got None")
        if self.nodes > 1 and self.between is None:
            raise ValueError(f"a cluster of {self.nodes} nodes needs a link between them, got None")
        if self.between and self.between.shape != "switch":
            raise ValueError(f"nodes are joined by a network, but {self.between} is a {self.between.shape}")
        if not (count(self.cards) and self.cards <= self.devices_per_node):
            raise ValueError(
                f"a node of {self.devices_per_node} devices has 1 to {self.devices_per_node} network cards, "
                f"got {self.cards}: a device sends through one card"
            )
        if not (part(self.contention) and self.contention < 1):
            raise ValueError(
                f"contention must be >= 0 and < 1, the fraction of speed that is lost, got {self.contention}"
            )

    def __str__(self):
        name = f"{self.nodes} x {self.devices_per_node} {self.device}"
        name += f", {self.inside} inside" if self.devices_per_node > 1 else ""
        return name + (f", {self.between} between" if self.nodes > 1 else "")

    # Where ranks are.

    @property
    def size(self) -> int:
        """The number of devices, and so of ranks that have a place."""
        return self.nodes * self.devices_per_node

    @property
    def cards(self) -> int:
        """Network cards of a node."""
        return self.devices_per_node if self.cards_per_node is None else self.cards_per_node

    @takes(ranks=count)
    def check_ranks(self, ranks):
        if ranks > self.size:
            places = f"{self.nodes} node{'s' * (self.nodes > 1)} x {self.devices_per_node} devices = {self.size}"
            raise ValueError(f"the cluster has {places}, but {ranks} ranks were asked for")

    def node_of(self, rank) -> int:
        if not (whole(rank) and rank < self.size):
            raise ValueError(f"the cluster has ranks 0 to {self.size - 1}, but rank {rank} was asked for")
        return rank // self.devices_per_node

    def local_rank(self, rank) -> int:
        return rank - self.node_of(rank) * self.devices_per_node

    def card_of(self, rank) -> int:
        """The network card, within its node, that a rank sends and receives through."""
        return self.local_rank(rank) * self.cards // self.devices_per_node

    def pod(self, nodes) -> "Cluster":
        """As many of these nodes."""
        return replace(self, nodes=nodes)

    @takes(matmul=positive, memory=positive, wire=positive, tiles=Tiles)
    def at(self, matmul=1.0, memory=1.0, wire=1.0, contention=None, tiles=None) -> "Cluster":
        """This cluster as programs get it: a part of the peaks, of the memory's bandwidth, of the links' bandwidth.

        ``contention``: the part of the speed of products that is lost while a collective runs, 0 if nobody says so.
        Measured: 0.16 on the mean of A100s, H100s, MI210s, MI250s, 0.29 at most (computing took 18.9 %, and 40 %,
        longer while it overlapped: Lee et al. 2025, Characterizing Compute-Communication Overlap in GPU-Accelerated
        Distributed Deep Learning). NCCL's kernels take multiprocessors: 24 of an H100's 132, say, are 0.18.

        ``tiles``: ``TILES["A100"]``, say. Then the best of all products gets ``matmul``, and others get less, as their
        tiles and waves are not full (tiles.py).
        """
        inside, between = (link and link.at(wire) for link in (self.inside, self.between))
        contention = self.contention if contention is None else contention
        device = self.device.at(matmul, memory, tiles)
        return replace(self, device=device, inside=inside, between=between, contention=contention)

    @property
    def communication_alone(self) -> "Cluster":
        """The same links between devices that compute in no time."""
        return replace(self, device=replace(INSTANT, name=f"{self.device}, messages alone"))

    # What joins them.

    def link(self, source, destination) -> Link:
        """The link that a message from one rank to another takes, as it is when nobody else sends."""
        home, away = self.node_of(source), self.node_of(destination)
        if source == destination:
            raise ValueError(f"a link joins two ranks, but both are rank {source}")
        if home != away:
            return self.between
        if self.inside.shape == "mesh":
            return self.inside.shared_by(self.devices_per_node - 1)
        return self.inside

    def resources(self, source, destination) -> tuple[Resource, ...]:
        """What a message holds while its bytes pass."""
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

    @takes(ranks=each_of(whole))
    def ring_link(self, ranks) -> Link | None:
        """What sets the pace of a ring through these ranks in this order: the worst of its links."""
        ring = [self.link(a, b) for a, b in zip(ranks, [*ranks[1:], *ranks[:1]]) if a != b]
        if not ring:
            return None
        slowest = min(ring, key=lambda link: link.bandwidth)
        return replace(slowest, latency=max(link.latency for link in ring))

    @property
    def between_all(self) -> Link | None:
        """The link between nodes, for each rank, while all ranks of a node send at once."""
        return self.between and self.between.shared_by(math.ceil(self.devices_per_node / self.cards))
