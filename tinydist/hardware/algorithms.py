"""How long a collective takes, by the algorithm that NCCL would choose for its size, or by another.

    collective_time("all_reduce", 2**20, ranks=32, per_node=8, cluster=find_cluster("B200 EFA pod"))    142 us

    NCCL Ring        each rank to the next; over nodes through all cards      all but exchanges
    NCCL Tree        a chain in each node, two binary trees between them      all_reduce
    NCCL NVLS        the switches of a node add (NVLink SHARP)                all_reduce, 5 GPUs or more
    NCCL NVLSTree    the same in each node, trees between them                all_reduce
    one-shot         each rank reads what all others have                     all_reduce, all_gather, reduce_scatter
    two-shot         each reads its part from all, then all other parts       all_reduce
    symmetric        NCCL on symmetric memory: one kernel, the switches add   all_reduce, 5 GPUs or more
    custom           vLLM's kernel: one or two shots, without a CUDA graph    all_reduce
    ring             messages of the algorithms of costs.py                   everything, on all links

One and two shots are what servers have: torch's symmetric memory, sglang's and vLLM's kernels; in a node only.
``"NCCL"`` chooses among NCCL's, ``"fastest"`` among all. An exchange (all_to_all, gather, scatter) has one way.

Each is a line, latency + n/bandwidth, for each protocol (LL, LL128, Simple: nccl.py), and the fastest is taken, as NCCL
does. The steps of a ring do not wait for a message's whole latency alpha: kernels on both ends write and poll memory.
All channels run side by side, and n is cut in chunks, so the bytes count once, at the pace of the slowest link.

The time is that of NCCL's kernel. PyTorch's host takes 20 to 30 us more to start it, which a program pays only where
the device waits for the host (ml-engineering@0cc3de50 network/benchmarks/README.md, read).

Sources: structure and latencies NVIDIA/nccl@5067397c src/graph/tuning.cc (read); what differs from it, and why, is in
fabrics.py and lines.py. Held against measurements: benchmarks/allreduce_model.py.
"""

import math
from functools import lru_cache

from ..rules import amount, count, one_of, stated, validate
from .bus_bandwidth import BUS_FACTORS
from .fabrics import NETWORKS, NODE_FABRICS
from .lines import Place, Timing
from .messages import by_messages

ALGORITHMS = (
    "NCCL", "NCCL Ring", "NCCL Tree", "NCCL NVLS", "NCCL NVLSTree",
    "one-shot", "two-shot", "symmetric", "custom", "fastest", "ring",
)  # fmt: skip
COLLECTIVES = (*BUS_FACTORS, "barrier")
DIRECT = ("one-shot", "two-shot", "symmetric", "custom")


@lru_cache(maxsize=4096)
def ways(what, ranks, per_node, cluster, algorithm):
    """The lines that may be chosen from: those of the algorithm, if it does this collective here; else NCCL's."""
    place = Place(ranks, per_node, cluster)
    lines = place.lines("all_reduce" if what == "barrier" else what)
    named = [line for line in lines if line.algorithm == algorithm]
    if named or algorithm == "fastest":
        return tuple(named or lines)
    # in a node, NCCL's logs show rings where a tree is about as fast
    return tuple(line for line in lines if line.algorithm not in DIRECT + ("NCCL Tree",) * (place.nodes == 1))


def timing(what, nbytes, ranks, per_node, cluster, algorithm=None) -> Timing:
    """Which algorithm and protocol, seconds of latency, and seconds of transfer."""
    algorithm = algorithm or cluster.algorithm
    if ranks == 1:
        return Timing("alone", "", 0.0, 0.0)
    per_node = math.gcd(ranks, per_node)  # nodes with unlike numbers of ranks count as more nodes, all alike
    if algorithm == "ring" or not known(cluster, ranks, per_node):
        return Timing("ring", "", *by_messages(what, nbytes, ranks, per_node, cluster))
    if what == "barrier":
        nbytes = 0
    found = ways(what, ranks, per_node, cluster, algorithm)
    return min(found, key=lambda line: line.seconds(nbytes)).timing(nbytes)


def known(cluster, ranks, per_node):
    """Whether NCCL's constants are known on all links between these ranks."""
    inside, between = cluster.intra_node, cluster.inter_node
    return bool(inside and inside.fabric in NODE_FABRICS) and (
        ranks == per_node or bool(between and between.fabric in NETWORKS)
    )


@validate(
    what=one_of(COLLECTIVES),
    nbytes=amount,
    ranks=count,
    per_node=count,
    cluster=stated("a Cluster", lambda value: hasattr(value, "devices_per_node")),
    algorithm=one_of(ALGORITHMS),
)
def collective_time(what, nbytes, ranks, per_node, cluster, algorithm=None) -> float:
    """Seconds of ``what`` (``all_reduce``, ``all_gather``, ``send`` ...) on ``ranks``, ``per_node`` of them in a node.

    ``nbytes``: as in nccl-tests the whole tensor, of an all_gather the output, of a reduce_scatter the input.
    ``algorithm``: one of ALGORITHMS; None is the cluster's. One that cannot do this leaves the choice to NCCL.
    """
    return timing(what, nbytes, ranks, per_node, cluster, algorithm).seconds
