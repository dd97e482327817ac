"""Which all-reduce is the fastest, for a size and a cluster: each as a number of steps, and the bytes of a step."""

from math import log2

from tinydist.hardware import LINKS
from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import ARITHMETIC, FORMULAS

CLUSTERS = {  # GPUs in a node, nodes, link inside, link between
    "8 A100": (8, 1, "NVSwitch (A100)", "InfiniBand HDR"),
    "6 A100": (6, 1, "NVSwitch (A100)", "InfiniBand HDR"),
    "2 x 8 A100": (8, 2, "NVSwitch (A100)", "InfiniBand HDR"),
    "8 x 8 H100": (8, 8, "NVSwitch (H100)", "InfiniBand NDR"),
    "3 x 6 A100": (6, 3, "NVSwitch (A100)", "InfiniBand HDR"),
    "4 x 4 GPUs over PCIe": (4, 4, "PCIe 4", "Ethernet 100"),
    "8 nodes of 1 GPU": (1, 8, "PCIe 4", "Ethernet 100"),
}
SIZES = {"1.44 GB": 1_440_000_000, "14.4 MB": 14_400_000, "144 kB": 144_000, "1 kB": 1_000}


def case(cluster, size):
    per_node, nodes, inside, between = CLUSTERS[cluster]
    arguments = SIZES[size], per_node, nodes, LINKS[inside], LINKS[between]
    return alone(lambda: arguments, f"{size} on {cluster}", facts=(cluster, size))


def test_cases():
    for cluster in CLUSTERS:
        for size in SIZES:
            yield case(cluster, size)


class Choice(Values):
    def alike(self, mine, other, right):
        """The same name alone says nothing: there are five."""
        return 2 * (super().alike(mine, other, right) == 2)


@exercise(
    title="Choose the algorithm",
    minutes=30,
    difficulty=4,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", ARITHMETIC, FORMULAS),
        Choice(
            f"the name of the fastest, and its seconds, on {len(CLUSTERS)} clusters, for 1 kB to 1.44 GB",
            names=("the algorithm", "the number of seconds"),
        ),
    ],
    mistakes=[
        mistake(
            "A ring goes round twice: p-1 steps until each part is summed, and p-1 until all ranks have all",
            'seconds["ring"] = 2 * (p - 1)',
            'seconds["ring"] = (p - 1)',
        ),
        mistake(
            "In a ring over several nodes each step waits for its slowest message, which goes between the nodes",
            "between if nodes > 1 else inside",
            "inside",
        ),
        mistake(
            "Recursive doubling swaps the whole tensor in each step",
            'seconds["recursive doubling"] = near * (inside.latency + nbytes / inside.bandwidth)',
            'seconds["recursive doubling"] = near * (inside.latency + nbytes / p / inside.bandwidth)',
            "far * (between.latency + nbytes / between.bandwidth)",
            "far * (between.latency + nbytes / p / between.bandwidth)",
        ),
        mistake(
            "After the exchanges inside each rank has 1/g of the tensor left, and only this goes between the nodes",
            "crossing = rest *",
            "crossing = nbytes *",
        ),
        mistake(
            "In some steps the partner is in another node, with that link's latency and bandwidth",
            "near, far = log2(per_node), log2(nodes)",
            "near, far = log2(p), 0",
            "nbytes * (per_node - 1) / per_node, nbytes / per_node",
            "nbytes * (p - 1) / p, 0",
        ),
        mistake(
            "Recursive doubling and nearest first pair the GPUs, which takes a power of 2 of them",
            "log2(p).is_integer()",
            "True",
        ),
        mistake(
            "The rings run side by side: what they send to the same neighbor in a step pays the latency once, not "
            "g-1 times",
            "inside.latency + (per_node - 1) * part / inside.bandwidth",
            "(per_node - 1) * (inside.latency + part / inside.bandwidth)",
        ),
        mistake(
            "Only the bytes are counted: each step also costs its latency",
            "inside.latency",
            "0",
            "between.latency",
            "0",
            "link.latency",
            "0",
        ),
    ],
    hints=[
        "Write each algorithm as a number of steps and the bytes of a step, as in the table at the end of "
        "chapter 03b. Then ask of each step over which link it goes. A dict from names to seconds keeps them together.",
        "In a ring over several nodes each step waits for its slowest message, and that one goes between the nodes. In "
        "recursive doubling lg g steps go inside and lg k between, each of n bytes.",
        "Nearest first exchanges n/2, n/4, ... inside, in lg g steps: (g-1)/g n. Then each rank has n/g left, of which "
        "(k-1)/k go between the nodes, in lg k steps. And all of it twice, there and back.",
        "The least of a dict: min(seconds.items(), key=lambda item: item[1]).",
    ],
    why="This is what NCCL's tuner does for every call, with constants of its own: it expects a time of each "
    "combination and "
    "takes the least. And you can say what a faster network would bring, before anybody buys it.",
)
def choose_algorithm(nbytes, per_node, nodes, inside, between):
    """Return the name of the fastest all-reduce of ``nbytes``, and the seconds that it takes.

    There are ``nodes`` nodes of ``per_node`` GPUs, each with a network card of its own. ``inside`` is the link between
    the GPUs of a node and ``between`` that between nodes, each with ``.latency`` in seconds and ``.bandwidth`` in bytes
    per second. (With one node, or one GPU in each, one of the two is not used.)

    Choose from "ring"; if there are several nodes of several GPUs, "hierarchical" and "several rings" (as many as a
    node has GPUs, side by side: what several of them send to the same GPU in a step is one message); if the number of
    GPUs is a power of 2, "recursive doubling" and "nearest first" (halving and doubling). Each step of each waits for
    its messages, latency included, as in the table of chapter 03b.
    """
    p = per_node * nodes
    seconds = {}
    # ? The seconds of each that is possible
    link = between if nodes > 1 else inside  # the slowest message of a step
    seconds["ring"] = 2 * (p - 1) * (link.latency + nbytes / (p * link.bandwidth))
    if nodes > 1 and per_node > 1:
        piece = nbytes / per_node
        seconds["hierarchical"] = 2 * (per_node - 1) * (inside.latency + piece / inside.bandwidth)
        seconds["hierarchical"] += 2 * (nodes - 1) * (between.latency + piece / nodes / between.bandwidth)
        part = nbytes / (per_node * p)  # of each ring
        in_nodes = inside.latency + (per_node - 1) * part / inside.bandwidth
        over_network = between.latency + part / between.bandwidth
        seconds["several rings"] = 2 * (p - 1) * max(in_nodes, over_network)
    if log2(p).is_integer():
        near, far = log2(per_node), log2(nodes)
        seconds["recursive doubling"] = near * (inside.latency + nbytes / inside.bandwidth)
        seconds["recursive doubling"] += far * (between.latency + nbytes / between.bandwidth)
        going, rest = nbytes * (per_node - 1) / per_node, nbytes / per_node
        crossing = rest * (nodes - 1) / nodes
        seconds["nearest first"] = 2 * (near * inside.latency + going / inside.bandwidth)
        seconds["nearest first"] += 2 * (far * between.latency + crossing / between.bandwidth)
    # .
    return min(seconds.items(), key=lambda item: item[1])
