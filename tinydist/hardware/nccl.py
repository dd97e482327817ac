"""NCCL's tuning model: predicts an all-reduce's time by algorithm and protocol, and chooses the fastest.

    protocols    LL        4 of 8 bytes are a flag: half of the bandwidth, but no memory fences
                 LL128     8 of 128 bytes are a flag: 94 % of the bandwidth; needs atomic 128-byte stores (NVLink)
                 Simple    whole chunks, then a flag: full bandwidth, highest latency per step
    ring         2(p-1) steps
    tree         a chain inside each of k nodes, a binary tree between them: g-1 + lg k steps up, and as many down

    seconds = latency + n/bandwidth; the latency is a base and one for each step

So alpha depends on the size: a tensor of 1 kB goes by LL at 0.6 us a step on NVLink, one of 1 GB by Simple at 3.4 us.
Not here: the algorithms in which switches add up (NVLS, CollNet), PAT, which is for other collectives, and what NCCL
finds out by searching the machine: how many channels, how fast each is, what latency the network adds.

Source: NVIDIA/nccl@5067397c (2.30.7), src/graph/tuning.cc: ncclTunerConstantsDefaults, ncclTopoTuneModel and
ncclTopoGetAlgoTime (read).
"""

from dataclasses import dataclass
from typing import NamedTuple

from ..rules import amount, count, one_of, positive, validate

ALGORITHMS = ("ring", "tree")
PROTOCOLS = ("LL", "LL128", "Simple")


def by_protocol(*values, unit=1.0):
    return {protocol: value * unit for protocol, value in zip(PROTOCOLS, values, strict=True)}


US, GB = 1e-6, 1e9  # seconds, bytes/s
BASE = {"ring": by_protocol(6.6, 14.0, 8.4, unit=US), "tree": by_protocol(6.8, 14.0, 8.4, unit=US)}
STEP = {
    "NVLink": {"ring": by_protocol(0.6, 1.9, 3.4, unit=US), "tree": by_protocol(0.6, 1.25, 4.0, unit=US)},
    "PCIe": {"ring": by_protocol(1.0, 2.5, 5.7, unit=US), "tree": by_protocol(1.0, 1.9, 4.0, unit=US)},
    "network": {"ring": by_protocol(2.7, 4.0, 14.0, unit=US), "tree": by_protocol(5.0, 8.5, 14.0, unit=US)},
}
# A ring over nodes takes as much for each step at least: the host posts a message to the network (getNetOverhead).
POST = {"Intel": by_protocol(1.0, 1.0, 3.0, unit=US), "AMD": by_protocol(2.0, 2.0, 6.0, unit=US)}
NVLS_STEP, NVLS_TREE_STEP = 25 * US, 20.9 * US  # the switches add; and from node to node
PLATEAU = 1.4  # times the latency, of a ring with Simple over nodes, once each rank has 64 bytes a channel

# Bytes/s that LL has at most: in a node by the GPU, over two nodes and over more by the host's CPU.
LL_IN_A_NODE = {"Ampere": 87.7 * GB, "Hopper": 141 * GB, "Blackwell": 282 * GB}
LL_OVER_NODES = {"Intel": (39 * GB, 20.4 * GB), "AMD": (22.5 * GB, 19 * GB)}
# The same of one channel, in one node, over two, over more.
RING_LL128 = {"Ampere": (20 * GB,) * 3, "Hopper": (36.7 * GB,) * 3, "Blackwell": (40 * GB,) * 3}
TREE_LL128 = {
    "Ampere": (20 * GB,) * 3,
    "Hopper": (36.7 * GB, 36.7 * GB, 29 * GB),
    "Blackwell": (55.6 * GB, 31.67 * GB, 20 * GB),
}
TREE = {
    "Ampere": (24 * GB, 23.6 * GB, 17.8 * GB),
    "Hopper": (38.7 * GB, 41.4 * GB, 36 * GB),
    "Blackwell": (70 * GB, 42.8 * GB, 24 * GB),
}

# A correction that its authors measured: what a tree gets of its bandwidth at 64 bytes, at 128, and so on to 256 MiB.
TREE_BY_SIZE = {
    "LL": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    "LL128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1),
    "Simple": (0.9,) * 7 + (0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
}


def tree_correction(nbytes, protocol):
    """What a tree gets of its bandwidth for so many bytes."""
    doubled = (int(nbytes) >> 6).bit_length() - 1  # 64 bytes, so many times
    by_size = TREE_BY_SIZE[protocol]
    return by_size[doubled] if 0 <= doubled < len(by_size) else 1


one_way = validate(algorithm=one_of(ALGORITHMS), protocol=one_of(PROTOCOLS))


class Choice(NamedTuple):
    seconds: float
    algorithm: str
    protocol: str


@validate(
    ranks=count,
    nodes=count,
    channels=count,
    channel_bandwidth=positive,
    generation=one_of(TREE),
    intra_node=one_of(("NVLink", "PCIe")),
    cpu=one_of(POST),
    tree_channel_bandwidth=positive,
)
@dataclass(frozen=True)
class Communicator:
    """Topology of the ranks of an all-reduce, as NCCL's tuning model sees it.

    ``tree_channel_bandwidth``: of a tree over two nodes, whose GPUs carry more bytes on NVLink than each card: NCCL's
    search raises it, up to twice ``channel_bandwidth`` (src/graph/search.cc, "increase bwIntra for trees"). A DGX A100
    has ``cpu="AMD"``.
    """

    ranks: int
    nodes: int
    channels: int
    channel_bandwidth: float  # bytes/s
    generation: str = "Ampere"
    intra_node: str = "NVLink"
    cpu: str = "Intel"  # of the hosts
    tree_channel_bandwidth: float | None = None  # bytes/s; None: channel_bandwidth

    def __post_init__(self):
        if self.ranks < 2 or self.ranks % self.nodes:
            rule = "ranks must be >= 2 and divisible by nodes"
            raise ValueError(f"Communicator: {rule}, got {self.ranks} ranks, {self.nodes} nodes")

    @one_way
    def latency(self, algorithm, protocol) -> float:
        """Seconds, of a tensor of no bytes."""
        within = STEP[self.intra_node][algorithm][protocol]
        alone = self.ranks == self.nodes  # then the steps between nodes hide behind no others
        between = STEP["network"]["tree" if alone else algorithm][protocol]
        if algorithm == "tree":
            up = (self.ranks // self.nodes - 1) * within + (self.nodes.bit_length() - 1) * between
            return BASE["tree"][protocol] + 2 * up
        crossing = 2 * (self.nodes - 1)
        within = max(within, POST[self.cpu][protocol]) if self.nodes > 1 else within
        return BASE["ring"][protocol] + (2 * (self.ranks - 1) - crossing) * within + crossing * between

    @one_way
    def bandwidth(self, algorithm, protocol) -> float:
        """Bytes/s of the tensor, when it is large."""
        size = min(self.nodes, 3) - 1
        wire = self.channels * self.channel_bandwidth
        ll = LL_OVER_NODES[self.cpu][size - 1] if size else LL_IN_A_NODE[self.generation]
        if algorithm == "ring":
            ll128 = self.channels * RING_LL128[self.generation][size]
            bus = {"LL": min(ll, wire / 2), "LL128": min(0.92 * wire, ll128), "Simple": wire}[protocol]
            return bus * self.ranks / (2 * (self.ranks - 1))
        if self.nodes == 2 and self.tree_channel_bandwidth:
            wire = self.channels * self.tree_channel_bandwidth
        wire = min(0.92 * wire, self.channels * TREE[self.generation][size])
        ll128 = self.channels * TREE_LL128[self.generation][size]
        part = 120 / 128 if size else 7 / 9
        return {"LL": min(wire / 3.8, ll), "LL128": min(part * wire, ll128), "Simple": wire}[protocol] / 2

    @validate(nbytes=amount)
    def seconds(self, nbytes, algorithm, protocol) -> float:
        latency, bandwidth = self.latency(algorithm, protocol), self.bandwidth(algorithm, protocol)
        if algorithm == "tree":
            bandwidth *= tree_correction(nbytes, protocol)
        elif protocol == "Simple" and self.nodes > 1 and nbytes >= 64 * self.channels * self.ranks:
            latency *= PLATEAU
        return latency + nbytes / bandwidth

    @property
    def protocols(self):
        """LL128 needs NVLink."""
        return PROTOCOLS if self.intra_node == "NVLink" else ("LL", "Simple")

    @validate(nbytes=amount)
    def choice(self, nbytes) -> Choice:
        """The fastest."""
        return min(
            Choice(self.seconds(nbytes, algorithm, protocol), algorithm, protocol)
            for algorithm in ALGORITHMS
            for protocol in self.protocols
        )


# 12 NVLinks, of each of which NCCL counts on 20 GB/s (src/graph/topo.h, read). Over nodes 8 cards of 200 Gbit/s, and on
# each a channel: the highest speed below that its search tries is 24 GB/s (src/graph/search.cc, speedArrayInter, read).
A100_NODE = Communicator(8, 1, channels=12, channel_bandwidth=20 * GB)


@validate(nodes=count, cpu=one_of(POST))
def a100_pod(nodes, cpu="Intel") -> Communicator:
    """So many nodes of 8 A100s."""
    return Communicator(8 * nodes, nodes, 8, 24 * GB, cpu=cpu) if nodes > 1 else A100_NODE
