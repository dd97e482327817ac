"""A ring or a tree, and by which protocol: latency in flight, and the bytes through the busiest wire."""

from math import isclose, log2

from tinydist.hardware import nccl
from tinydist.lab.author import Own, Varied, alone, exercise, mistake

from .chapter import ARITHMETIC, FORMULAS

GB = 1e9
SIZES = {"1 kB": 1e3, "1 MB": 1e6, "300 MB": 3e8, "100 GB": 1e11}
CLUSTERS = {  # GPUs in a node, nodes, bytes/s from GPU to GPU and of all cards of a node, processor of the hosts
    "8 A100": (8, 1, 240 * GB, 192 * GB, "AMD"),
    "2 x 8 A100": (8, 2, 240 * GB, 192 * GB, "AMD"),
    "2 x 8 A100, slower cards": (8, 2, 240 * GB, 96 * GB, "AMD"),
    "16 x 8 A100": (8, 16, 240 * GB, 192 * GB, "AMD"),
    "3 x 6 A100, slower cards": (6, 3, 240 * GB, 96 * GB, "Intel"),
    "4 x 4 GPUs, fast cards": (4, 4, 100 * GB, 200 * GB, "Intel"),
}
# Of the bytes on the wire, the part that is data, as tuning.cc counts it
PART = {"ring": {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}, "tree": {"LL": 0.24, "LL128": 0.86, "Simple": 0.92}}


def ways(nodes, cpu):
    """{(algorithm, protocol): (base, inside, between, part)}"""
    found = {}
    for algorithm, protocols in PART.items():
        for protocol, part in protocols.items():
            inside = nccl.STEP["NVLink"][algorithm][protocol]
            if algorithm == "ring" and nodes > 1:
                inside = max(inside, nccl.POST[cpu][protocol])
            between = nccl.STEP["network"][algorithm][protocol]
            found[algorithm, protocol] = nccl.BASE[algorithm][protocol], inside, between, part
    return found


def case(cluster, size):
    per_node, nodes, nvlink, cards, cpu = CLUSTERS[cluster]
    arguments = SIZES[size], per_node, nodes, nvlink, cards, ways(nodes, cpu)
    return alone(lambda: arguments, f"{size} on {cluster}", facts=(cluster, size))


def test_cases():
    for cluster in CLUSTERS:
        for size in SIZES:
            yield case(cluster, size)


class Choice(Varied):
    def alike(self, mine, other, right):
        """The same names alone say nothing: there are six pairs."""
        return 2 * (super().alike(mine, other, right) == 2)

    def general(self, trial, right):
        """In steps, or in bytes: how far its seconds are from what is right of its own choice."""
        nbytes, *shape, nvlink, cards, ways = trial.case.arguments(0)
        *pair, mine = trial.returned[0]
        if tuple(pair) not in ways:
            return ""
        base, inside, between, part = ways[tuple(pair)]

        def seconds(base=base, inside=inside, between=between, part=part, nbytes=nbytes, nvlink=nvlink, cards=cards):
            way = {tuple(pair): (base, inside, between, part)}
            return choose_algorithm(nbytes, *shape, nvlink, cards, way)[-1]

        p = shape[0] * shape[1]
        sent = p / (p - 1) / 2 if pair[0] == "ring" else 1 / 2
        others = {
            f"The seconds are right, and {' and '.join(right.returned[0][:2])} takes fewer. Are yours of that more, or "
            "is it not the least that you take?": seconds(),
            "base is missing: each call takes it once": seconds(base=0),
            "part is missing: of what a wire carries, that much is data": seconds(part=1),
            "The bytes are missing, or they take no time": seconds(nbytes=0),
            "The latency of the steps is missing": seconds(inside=0, between=0),
            "Steps inside of a node are missing": seconds(inside=0),
            "Steps between nodes are missing": seconds(between=0),
            "These are the bytes in one direction: in a ring and in a tree, a sum goes up and comes back": seconds(
                nbytes=nbytes / 2
            ),
            "A GPU sends n here: in a ring it sends 2 (p-1)/p n, in a tree 2 n": seconds(nbytes=nbytes * sent),
            "cards are those of a node together: they are not each GPU's": seconds(cards=cards * shape[0]),
            "cards are those of a node together: do not divide them by its GPUs": seconds(cards=cards / shape[0]),
            "The wires inside are missing: NVLink may be the busiest": seconds(nvlink=1e30),
            "The wires between are missing: the cards may be the busiest": seconds(cards=1e30),
            "Units: a byte has 8 bits": seconds(nbytes=nbytes * 8),
            "Units: a byte has 8 bits, and these are bytes": seconds(nbytes=nbytes / 8),
        }
        found = [words for words, each in others.items() if isclose(mine, each, rel_tol=1e-9)]
        if 0 < len(found) < 3:
            told = ". Or: ".join(found)
            return f"By {' and '.join(pair)}: {told[0].lower()}{told[1:]}"
        off = mine - seconds()
        units = {"a step between nodes": between, "a step inside a node": inside}
        units |= {
            "the time of n bytes on NVLink": nbytes / nvlink / part,
            "that of n bytes on the cards": nbytes / cards / part,
        }
        for what, seconds in units.items():
            count = off / seconds
            if 0.5 < abs(count) < 1000 and abs(count - round(count)) < 1e-6:
                return (
                    f"By {' and '.join(pair)} it is {abs(round(count))} x {what} too {'long' if off > 0 else 'short'}"
                )
        return super().general(trial, right)


@exercise(
    title="A ring or a tree",
    minutes=30,
    difficulty=4,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", ARITHMETIC, FORMULAS),
        Choice(
            f"the algorithm, the protocol and the seconds of the fastest, on {len(CLUSTERS)} clusters, for 1 kB to "
            "100 GB (1 kB on 16 nodes of eight A100s: tree and LL, 55.2 us; there a ring by LL takes 536 us)",
            names=("the algorithm", "the protocol", "the number of seconds"),
            variants=[
                (
                    "Over two nodes a tree sends half as much out of each node, and still 2 n through each NVLink",
                    "                leaves = nbytes\n",
                    "                sent = leaves = nbytes\n",
                ),
                (
                    "The wires inside are missing: NVLink may be the busiest",
                    "max(transfer, leaves / cards)",
                    "leaves / cards",
                ),
                (
                    "The wires between are missing: the cards may be the busiest",
                    "max(transfer, leaves / cards)",
                    "max(transfer, 0)",
                ),
                (
                    "A ring sends 2 (p-1)/p n, and a tree 2 n: here a ring sends 2 n, too",
                    "leaves = 2 * (p - 1) / p * nbytes",
                    "leaves = 2 * nbytes",
                ),
                ("2 ⌊lg nodes⌋ steps: round down", "int(log2(nodes))", "-int(-log2(nodes) // 1)"),
                ("A tree has 2 ⌊lg nodes⌋ steps between nodes, and not ⌊lg p⌋", "int(log2(nodes))", "int(log2(p))"),
                ("Steps of a tree go up, and down again: twice ⌊lg nodes⌋", "2 * int(log2", "int(log2"),
                (
                    "A chain of per_node GPUs has per_node - 1 steps",
                    "2 * (per_node - 1) * inside",
                    "2 * per_node * inside",
                ),
                (
                    "The chain of a node goes up, and down again: twice per_node - 1 steps",
                    "2 * (per_node - 1) * inside",
                    "(per_node - 1) * inside",
                ),
                (
                    "A chain of a node has per_node - 1 steps; all GPUs of all nodes are not in one",
                    "2 * (per_node - 1) * inside",
                    "2 * (p - 1) * inside",
                ),
                (
                    "With several nodes a ring has as many steps between as there are nodes, less one: twice",
                    "crossing = 2 * (p - 1), 2 * (nodes - 1)",
                    "crossing = 2 * (p - 1), 2 * nodes * (nodes > 1)",
                ),
                (
                    "part is of what is sent: latency is not divided by it",
                    "base + latency + transfer / part",
                    "base + (latency + transfer) / part",
                ),
                (
                    "A tree sends 2 n, however many ranks there are",
                    "leaves = 2 * nbytes",
                    "leaves = 2 * (p - 1) / p * nbytes",
                ),
                (
                    "A ring sends 2 (p-1)/p n: of p ranks, and not of nodes",
                    "2 * (p - 1) / p * nbytes\n        else",
                    "2 * (nodes - 1) / nodes * nbytes\n        else",
                ),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "This lets every step of the ring wait for the network. Latency is in flight: only 2 (nodes-1) steps of "
            "the ring pay it",
            "(steps - crossing) * inside + crossing * between",
            "steps * between",
        ),
        mistake(
            "A tree has a chain in each node, of per_node-1 steps up and as many down, before it goes to others",
            "2 * (per_node - 1) * inside + 2 * int(log2(nodes)) * between",
            "2 * int(log2(nodes)) * between",
        ),
        mistake(
            "A tree goes up and down again: its latency counts twice",
            "2 * (per_node - 1) * inside + 2 * int(log2(nodes)) * between",
            "(per_node - 1) * inside + int(log2(nodes)) * between",
        ),
        mistake(
            "Over two nodes one of them sends its sum up, and the other sends the whole back: through the cards of "
            "each go n bytes, not 2 n",
            "if nodes == 2:",
            "if False:",
        ),
        mistake(
            "With more than two nodes some node of the tree sends to its parent and to its children: 2 n through its "
            "cards. Only with two nodes it is n",
            "if nodes == 2:",
            "if nodes > 1:",
        ),
        mistake(
            "The bytes inside and those between the nodes are on their way at the same time: the slower of the two "
            "counts, not their sum",
            "max(transfer, leaves / cards)",
            "transfer + leaves / cards",
        ),
        mistake(
            "part is how much of what a wire carries is data, so it makes the transfer longer: divide by it",
            "transfer / part",
            "transfer * part",
        ),
        mistake(
            "In a single node nothing goes through the cards, however slow they are",
            "if nodes > 1:",
            "if True:",
        ),
    ],
    hints=[
        "Compute the seconds of each of the six ways in a dict, and take the least. Each is base + latency + "
        "transfer / part. What are latency and transfer of a ring, and of a tree?",
        "Ring: of 2 (p-1) steps 2 (nodes-1) pay between and the others inside; each GPU sends 2 (p-1)/p n, and so "
        "much leaves each node. Tree: 2 (per_node-1) steps inside and 2 ⌊lg nodes⌋ between; each GPU sends 2 n.",
        "transfer = sent / nvlink; with several nodes the larger of this and leaves / cards. What leaves a node is "
        "what a GPU sends, but for a tree over two nodes: there it is n.",
        "min(seconds.items(), key=lambda item: item[1]) gives ((algorithm, protocol), seconds).",
    ],
    why="This is ncclTopoTuneModel for rings and trees, but for its limits of a channel: by those (23.6 GB/s for a "
    "tree of A100s over two nodes) NCCL takes the ring on two nodes with fast cards, and the tree with slower ones. By "
    "such a model you can say before you rent the nodes where a tree ends and a ring begins.",
)
def choose_algorithm(nbytes, per_node, nodes, nvlink, cards, ways):
    """Return (algorithm, protocol, seconds) of the fastest all-reduce of ``nbytes``, as NCCL counts it.

    There are ``nodes`` nodes of ``per_node`` GPUs. A GPU sends ``nvlink`` bytes per second to its neighbor, and all
    network cards of a node together send ``cards``. ``ways`` is {(algorithm, protocol): (base, inside, between,
    part)}: the seconds that each call takes, of a step inside a node (posting included), and of one between nodes; and
    the part of what is sent that is data. The algorithms are "ring" (as many rings as there are cards) and "tree" (a
    chain in each node; between the nodes two trees for half of the tensor each, 2 ⌊lg nodes⌋ steps up and down).

    Latency is in flight. All chunks are on their way at the same time, so the busiest wire counts: of a ring
    2 (p-1)/p n go through each GPU's NVLink, and out of each node; of a tree 2 n, up and down again, but over two
    nodes only n leave each node.
    """
    p = per_node * nodes
    seconds = {}
    for (algorithm, protocol), (base, inside, between, part) in ways.items():
        # ? Latency, and the bytes that a GPU sends, and those that leave a node
        if algorithm == "ring":
            steps, crossing = 2 * (p - 1), 2 * (nodes - 1)
            latency = (steps - crossing) * inside + crossing * between
            sent = leaves = 2 * (p - 1) / p * nbytes
        else:
            latency = 2 * (per_node - 1) * inside + 2 * int(log2(nodes)) * between
            sent = leaves = 2 * nbytes
            if nodes == 2:
                leaves = nbytes
        # ? The busiest wire, and all of it
        transfer = sent / nvlink
        if nodes > 1:
            transfer = max(transfer, leaves / cards)
        seconds[algorithm, protocol] = base + latency + transfer / part
        # .
    algorithm, protocol = min(seconds, key=seconds.get)
    return algorithm, protocol, seconds[algorithm, protocol]
