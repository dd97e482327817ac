"""What NCCL expects an all-reduce to take on nodes of 8 A100s. For each call it takes the least of what it expects.

    algorithm    Ring       all ranks in a row, from node to node, in several rings: all network cards send
                 Tree       a chain inside each node, and two binary trees between the nodes
    protocol     LL         each 4 bytes of data have a flag of 4: nobody waits for a signal, half the bytes are flags
                 LL128      120 bytes of data, and a flag of 8
                 Simple     data alone; a signal when a chunk is there

    seconds      latency + n / (bus bandwidth / what a byte of the tensor costs)

    latency      Ring       start + 2(p - k) a_in + 2(k-1) a_out        p ranks in k nodes
                 Tree       start + 2(p/k - 1) a_in + 2 lg k a_out

Left out, as these nodes have no use for it: NVLS (sums in an NVSwitch, from the H100 on), CollNet (sums in network
switches). Source: NVIDIA/nccl@5067397c (2.30.7), src/graph/tuning.cc (read), for hosts with AMD processors as a DGX
A100 has. How many rings and how fast is our reading of topo.h and search.cc: 12 of 20 GB/s in a node, one for each
NVLink; 8 of 24 GB/s over nodes, one for each card of 200 Gbit/s.
"""

from ..rules import amount, count, one_of, takes

PER_NODE = 8
GB, MICRO = 1e9, 1e-6  # bytes, seconds
ALGORITHMS, PROTOCOLS = ("Ring", "Tree"), ("LL", "LL128", "Simple")

# Microseconds, by protocol: of a call, and of each step inside a node and between nodes.
START = {"Ring": (6.6, 14.0, 8.4), "Tree": (6.8, 14.0, 8.4)}
INSIDE = {"Ring": (0.6, 1.9, 3.4), "Tree": (0.6, 1.25, 4.0)}
BETWEEN = {"Ring": (2.7, 4.0, 14.0), "Tree": (5.0, 8.5, 14.0)}
# Of rings over nodes: a step inside costs what posting to a card costs, and large tensors pay more for all steps.
POSTING, PLATEAU = (2.0, 2.0, 6.0), 1.4

# GB/s. On 1 node, 2, and more: rings and their speed; the most of LL, and of a ring's or tree's channel.
CHANNELS = {1: (12, 20.0), 2: (8, 24.0), 3: (8, 24.0)}
MOST_OF_LL = {1: 87.7, 2: 22.5, 3: 19.0}
MOST_OF_CHANNEL = {1: (20.0, 24.0), 2: (20.0, 23.6), 3: (20.0, 17.8)}  # with LL128; of a tree

# Trees are slower than that in the middle: by protocol, for 64 B, 128 B, 256 B, ... and as the model is for 512 MB.
OF_TREE = {
    "LL": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    "LL128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, *(0.6,) * 6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1),
    "Simple": (*(0.9,) * 7, 0.8, 0.7, 0.6, 0.6, *(0.5,) * 4, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
}

algorithms, protocols = one_of(ALGORITHMS), one_of(PROTOCOLS)


@takes(nbytes=amount, nodes=count, algorithm=algorithms, protocol=protocols)
def seconds(nbytes, nodes, algorithm, protocol) -> float:
    """Of an all-reduce on as many nodes of 8 A100s."""
    ranks = nodes * PER_NODE
    cost = 2 * (ranks - 1) / ranks if algorithm == "Ring" else 2  # bytes on the bus for each byte of the tensor
    slower = of_tree(nbytes, protocol) if algorithm == "Tree" else 1.0
    return latency(nbytes, nodes, algorithm, protocol) + nbytes * cost / slower / bus(nodes, algorithm, protocol)


@takes(nbytes=amount, nodes=count)
def choice(nbytes, nodes=1) -> tuple[str, str]:
    """The algorithm and the protocol that take the least."""
    both = [(algorithm, protocol) for algorithm in ALGORITHMS for protocol in PROTOCOLS]
    return min(both, key=lambda each: seconds(nbytes, nodes, *each))


def latency(nbytes, nodes, algorithm, protocol):
    """Seconds, before the bytes."""
    number, ranks = PROTOCOLS.index(protocol), nodes * PER_NODE
    start, inside, between = (table[algorithm][number] for table in (START, INSIDE, BETWEEN))
    if algorithm == "Tree":
        return MICRO * (start + 2 * (PER_NODE - 1) * inside + 2 * (nodes.bit_length() - 1) * between)
    if nodes > 1:
        inside = max(inside, POSTING[number])
    in_all = MICRO * (start + 2 * (ranks - nodes) * inside + 2 * (nodes - 1) * between)
    plateau = nodes > 1 and protocol == "Simple" and nbytes // (CHANNELS[min(nodes, 3)][0] * ranks) >= 64
    return in_all * (PLATEAU if plateau else 1.0)


def bus(nodes, algorithm, protocol):
    """Bus bandwidth, bytes/s."""
    nodes = min(nodes, 3)
    channels, speed = CHANNELS[nodes]
    with_ll128, of_a_tree = (channels * most for most in MOST_OF_CHANNEL[nodes])
    whole = channels * speed
    if algorithm == "Tree":
        whole = min(0.92 * whole, of_a_tree)
        ll, ll128 = whole / 3.8, whole * (7 / 9 if nodes == 1 else 120 / 128)
    else:
        ll, ll128 = whole / 2, whole * 0.92
    return GB * {"LL": min(ll, MOST_OF_LL[nodes]), "LL128": min(ll128, with_ll128), "Simple": whole}[protocol]


def of_tree(nbytes, protocol):
    """The part of its bandwidth that a tree has."""
    power = (int(nbytes) >> 6).bit_length() - 1
    return OF_TREE[protocol][power] if power in range(len(OF_TREE[protocol])) else 1.0
