"""Three axes on nodes of eight GPUs: which of them may use the network between nodes?"""

from itertools import permutations
from math import prod
from random import Random

from tinydist.lab.author import Own, Varied, alone, exercise, mistake

SETTINGS = {  # sizes; bytes that a rank sends in a step along each axis, to one neighbor
    "32 GPUs, three axes": ({"pp": 4, "dp": 2, "tp": 4}, {"pp": 1.1e9, "dp": 0.9e9, "tp": 52e9}),
    "32 GPUs, little to average": ({"pp": 2, "dp": 4, "tp": 4}, {"pp": 3.4e9, "dp": 0.4e9, "tp": 40e9}),
    "32 GPUs, much to average": ({"pp": 2, "dp": 4, "tp": 4}, {"pp": 0.3e9, "dp": 6e9, "tp": 1.4e9}),
    "32 GPUs, no tensor parallelism": ({"pp": 4, "dp": 8, "tp": 1}, {"pp": 0.5e9, "dp": 4e9, "tp": 0.0}),
    "32 GPUs, wide": ({"pp": 1, "dp": 2, "tp": 16}, {"pp": 0.0, "dp": 0.5e9, "tp": 60e9}),
    "24 GPUs": ({"pp": 3, "dp": 2, "tp": 4}, {"pp": 2e9, "dp": 1e9, "tp": 9e9}),
    "48 GPUs, groups of six": ({"pp": 4, "dp": 2, "tp": 6}, {"pp": 1e9, "dp": 2e9, "tp": 30e9}),
    "one node": ({"pp": 2, "dp": 2, "tp": 2}, {"pp": 1e9, "dp": 1e9, "tp": 8e9}),
}
CLOSE = "groups = [range(first, first + stride * sizes[axis], stride) for first in firsts]"
LEAVES = "if any(len({rank // 8 for rank in ranks}) > 1 for ranks in groups):"
SECONDS = "sum(sent[axis] / (25e9 if axis in leaving else 300e9) for axis in sizes if sizes[axis] > 1)"


def drawn(seed):
    """Any sizes, also of axes that do not send what they could."""
    draw, sizes = Random(seed), {"tp": 1}
    while not 1 < prod(sizes.values()) <= 48:
        sizes = {axis: draw.choice((1, 2, 3, 4, 6)) for axis in ("pp", "dp", "tp")}
    sent = {axis: draw.randint(1, 99) * 1e8 for axis in sizes}
    return f"{prod(sizes.values())} GPUs, {', '.join(f'{axis} {sizes[axis]}' for axis in sizes)}", (sizes, sent)


def test_cases():
    for about, (sizes, sent) in [*SETTINGS.items(), *map(drawn, range(24))]:
        yield alone(lambda sizes=sizes, sent=sent: (dict(sizes), dict(sent)), about)


@exercise(
    title="Place three axes on nodes",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Varied(
            "the least seconds, and the axes that leave their node then, for up to 48 GPUs",
            names=("the number of seconds", "the axes that leave their node"),
            variants=[
                (
                    "This is the slowest order: the one that sends least over the network is asked for",
                    "return min(found)",
                    "return max(found)",
                ),
                (
                    "These are the seconds of all ranks of an axis together: `sent` is what each rank sends, at the "
                    "same "
                    "time",
                    "sum(sent[axis]",
                    "sum(sizes[axis] * sent[axis]",
                ),
                (
                    "`sent` is what a rank sends: it is not multiplied by (p - 1)/p again",
                    "sum(sent[axis]",
                    "sum((sizes[axis] - 1) / sizes[axis] * sent[axis]",
                ),
                (
                    "Bytes are divided by bytes per second: there are no bits in it",
                    "sum(sent[axis]",
                    "sum(8 * sent[axis]",
                ),
                (
                    "The speeds are swapped: inside of a node bytes pass at 300e9 per second",
                    "if axis in leaving else",
                    "if axis not in leaving else",
                ),
                (
                    "All of an axis passes at the network's speed if all axes together have more than 8 ranks: an axis "
                    "leaves its node if one of its groups does",
                    LEAVES,
                    "if sizes[axis] > 1 and prod(sizes.values()) > 8:",
                ),
                (
                    "These are the axes that stay: those that leave their node are asked for",
                    '"-".join(sorted(leaving))',
                    '"-".join(sorted(set(order) - set(leaving)))',
                ),
                (
                    "An axis of one rank leaves no node",
                    "leaving.append(axis)\n            stride",
                    "leaving.append(axis)\n            elif sizes[axis] == 1:\n                leaving.append(axis)\n "
                    "           stride",
                ),
                (
                    "This is the order that leaves with the fewest axes, and not the one with the fewest seconds",
                    "return min(found)",
                    "return min(found, key=lambda each: len(each[1]))",
                ),
                (
                    "What sends most comes first here, whatever it costs then: try all orders",
                    "in permutations(sizes)",
                    "in [sorted(sizes, key=sent.get, reverse=True)]",
                ),
            ],
        ),
        Own("your own arithmetic", "it is arithmetic on the numbers of ranks", ["tinydist.hardware"]),
    ],
    mistakes=[
        mistake(
            "Other orders than tp, dp, pp may be better: here dp sends more than tp does",
            "permutations(sizes)",
            '[("tp", "dp", "pp")]',
        ),
        mistake(
            "The fastest axis gets the nearest ranks, so it belongs to the front of the order. These are the seconds "
            "of the order pp, dp, tp",
            "permutations(sizes)",
            '[("pp", "dp", "tp")]',
        ),
        mistake(
            "An axis of few ranks leaves its node, too, where they are far apart: the next rank of its group is as "
            "many ranks away as all faster axes have together",
            CLOSE,
            "groups = [range(sizes[axis])]",
        ),
        mistake(
            "One group inside of a node says nothing of the others: with groups of six on nodes of eight, the second "
            "one begins in node 0 and ends in node 1",
            CLOSE,
            CLOSE.replace("in firsts", "in firsts[:1]"),
        ),
        mistake("An axis of one rank sends nothing, whatever sent says", " if sizes[axis] > 1)", ")"),
        mistake(
            "A group of eight ranks or fewer may lie on two nodes: it depends on where it begins. Groups of six begin "
            "at ranks 0, 6, 12, and the second has the ranks 6 to 11 of nodes 0 and 1",
            LEAVES,
            "if sizes[axis] > 1 and stride * sizes[axis] > 8:",
        ),
        mistake(
            "What stays inside costs time as well: its bytes pass over NVLink",
            SECONDS,
            "sum(sent[axis] / 25e9 for axis in leaving)",
        ),
        mistake(
            "Axes follow one another in a step, as each waits for what it sends: their seconds are added up",
            "sum(sent[axis]",
            "max(sent[axis]",
        ),
    ],
    hints=[
        "There are six orders of three axes. For each of them ask of each axis: is there a group of it whose ranks are "
        "not all in one node?",
        "Rank r is in node r // 8. In an order, the stride of an axis, from one rank of a group to the next, is the "
        "product of the sizes of all axes that count faster.",
        "The first ranks of the groups of an axis are those whose number along it is 0: rank // stride % size == 0.",
    ],
    why="The three sizes say how much is sent, and the order says over which wire. DeepSpeed's topology for "
    "pipelines, replicas and model parallelism has the axes pipe, data, model, the last one fastest, for this reason.",
)
def place_axes(sizes, sent):
    """Return (seconds, leaving): of the best order of the axes, what a step spends on sending, and which axes leave
    their nodes: "" or "pp", or several in alphabetical order, such as "dp-pp".

    ``sizes`` and ``sent`` are dicts with the keys "pp", "dp" and "tp": how many ranks an axis has, and how many bytes
    each rank sends along it in a step. A node has 8 GPUs: ranks 0 to 7, 8 to 15 and so on. In an order of axes the
    first one counts fastest. If all groups of an axis lie inside of nodes its bytes pass at 300e9 bytes per second,
    else at 25e9. An axis of one rank sends nothing, whatever ``sent`` says. Nothing overlaps, so seconds add up.
    """
    found = []  # (seconds, leaving) of each order
    # ? For each order: which axes leave their node, and what does a step spend on sending?
    for order in permutations(sizes):
        leaving, stride = [], 1
        for axis in order:
            firsts = [rank for rank in range(prod(sizes.values())) if rank // stride % sizes[axis] == 0]
            groups = [range(first, first + stride * sizes[axis], stride) for first in firsts]
            if any(len({rank // 8 for rank in ranks}) > 1 for ranks in groups):
                leaving.append(axis)
            stride *= sizes[axis]
        seconds = sum(sent[axis] / (25e9 if axis in leaving else 300e9) for axis in sizes if sizes[axis] > 1)
        found.append((seconds, "-".join(sorted(leaving))))
    # .
    return min(found)
