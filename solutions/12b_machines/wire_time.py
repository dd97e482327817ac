"""Which wire the bytes take between nodes, and how long they take, by the lines that NCCL prints."""

import re
from random import Random

from tinydist.lab.author import Own, Varied, alone, exercise, mistake


def lines_of(seed, nodes, per_node, channels, wire, interfaces):
    """As NCCL prints with NCCL_DEBUG=INFO: rings, and each connection between nodes by both of its ranks."""
    draw, ranks, lines = Random(seed), nodes * per_node, []
    for channel in range(channels):
        ring = []
        for node in range(nodes)[:: -1 if channel % 2 else 1]:  # as NCCL turns some round
            turn = channel % per_node
            own = [node * per_node + place for place in range(per_node)]
            ring += own[turn:] + own[:turn]
        told = " ".join(f"{rank:>3}" for rank in ring)
        lines.append(f"node0:71:95 [0] NCCL INFO Channel {channel:02}/{channels:02} : {told}")
        for sender, receiver in zip(ring, ring[1:] + ring[:1]):
            words = f"Channel {channel:02}/0 : {sender}[{sender % per_node}] -> {receiver}[{receiver % per_node}]"
            if sender // per_node == receiver // per_node:
                lines.append(f"{printed(sender, per_node)} {words} via P2P/IPC/read")
                continue
            rdma = "/GDRDMA" * (wire == "IB")
            for rank, way in ((sender, "send"), (receiver, "receive")):
                number = draw.randrange(interfaces)
                lines.append(f"{printed(rank, per_node)} {words} [{way}] via NET/{wire}/{number}{rdma}")
    draw.shuffle(lines)
    return "\n".join(lines), ranks


def printed(rank, per_node):
    return f"node{rank // per_node}:{71 + rank}:{95 + rank} [{rank % per_node}] NCCL INFO"


def case(seed, *size):
    nodes, per_node, channels, wire, interfaces = size
    rates = {"IB": 25e9, "Socket": 1.25e9}

    def arguments():
        log, ranks = lines_of(seed, *size)
        return log, ranks, per_node, 4 * 7_000_000 * (1 + seed), rates

    about = f"{nodes} nodes of {per_node} GPUs, {channels} channels, {interfaces} interfaces, {wire}"
    return alone(arguments, about)


def test_cases():
    yield case(0, 3, 2, 5, "Socket", 2)
    yield case(1, 2, 8, 2, "IB", 2)
    yield case(2, 1, 8, 2, "IB", 1)
    yield case(3, 3, 2, 4, "Socket", 3)
    yield case(4, 4, 4, 8, "IB", 4)
    yield case(5, 16, 1, 2, "Socket", 2)
    yield case(6, 2, 8, 16, "IB", 8)
    yield case(7, 12, 1, 3, "IB", 1)


@exercise(
    title="Which wire, and how long?",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own reading", "read the lines yourself", ("tinydist.hardware", "tinydist.planner")),
        Varied(
            "8 logs of 8 to 24 GPUs on 1 to 16 nodes",
            ["the wire", "the seconds"],
            whole=True,
            variants=[
                (
                    "It is half of what is right: an all-reduce goes round twice, first to add up and then to share",
                    "2 * (ranks - 1)",
                    "(ranks - 1)",
                ),
                (
                    "Of a ring of n ranks each sends (n - 1) / n, twice: it has a part of the sum itself",
                    "2 * (ranks - 1) / ranks",
                    "2",
                ),
                (
                    "The ring goes through all ranks, and not through nodes: each sends 2 (n - 1) / n, n of them ranks",
                    "2 * (ranks - 1) / ranks",
                    "2 * (ranks // per_node - 1) / (ranks // per_node)",
                ),
                (
                    "Each rank sends 2 (n - 1) / n of the tensor, and not 2 (n - 1) times it",
                    "2 * (ranks - 1) / ranks",
                    "2 * (ranks - 1)",
                ),
                (
                    "All interfaces of a node are added up: they send at the same time, and the busiest counts",
                    "(int(sender) // per_node, number)",
                    "int(sender) // per_node",
                ),
                (
                    "This is the mean of the interfaces: the busiest counts",
                    "max(busy.values(), default=0.0)",
                    "sum(busy.values()) / max(1, len(busy))",
                ),
                (
                    "This is the interface that sends least: the busiest counts",
                    "max(busy.values(), default=0.0)",
                    "min(busy.values(), default=0.0)",
                ),
                (
                    "These are the interfaces of node 0 alone",
                    "max(busy.values(), default=0.0)",
                    "max((each for (node, _), each in busy.items() if node == 0), default=0.0)",
                ),
                (
                    "An interface belongs to a node, and not to a rank: ranks of a node share it",
                    "(int(sender) // per_node, number)",
                    "(int(sender), number)",
                ),
                (
                    "The lines of those that receive are counted: the interface is the sender's",
                    r"\[send\] via",
                    r"\[receive\] via",
                ),
                ("rates are bytes per second: there are no bits in it", "/ rates[wire] if", "* 8 / rates[wire] if"),
                (
                    "The channels have equal parts of the tensor: divide by their number, and not by that of "
                    "connections",
                    "/ len(channels)",
                    r"/ max(1, len(re.findall(r'\[send\] via NET', log)))",
                ),
                ("The rate is that of the wire that is used", "/ rates[wire] if", '/ rates["IB"] if'),
                (
                    "Each rank's part is divided by the ranks of a node: connections out of a node are few, and carry "
                    "all of "
                    "a channel's bytes",
                    "/ len(channels)",
                    "/ len(channels) / per_node",
                ),
                (
                    "It is told to be a wire where nothing leaves the node",
                    'wire, busy = "", {}',
                    'wire, busy = "IB", {}',
                ),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "Each connection between nodes stands twice in a log: by its sender and its receiver. A byte is sent once",
            r" \[send\] via",
            r" \[\w+\] via",
        ),
        mistake(
            "The channels share the bytes: each has its own part of the tensor",
            "/ len(channels)",
            "/ 1",
        ),
        mistake(
            "In a ring of n ranks each sends 2 (n - 1) / n of the tensor, first to add up and then to share",
            "2 * (ranks - 1) / ranks * nbytes",
            "nbytes",
        ),
        mistake(
            "An interface belongs to a node: number 0 of one node is not number 0 of another",
            "(int(sender) // per_node, number)",
            "number",
        ),
        mistake(
            "Interfaces of a node send at the same time: the busiest one counts, and not all together",
            "max(busy.values(), default=0.0)",
            "sum(busy.values())",
        ),
        mistake(
            "Several channels may go through one interface, one after the other: what they send adds up",
            "busy[interface] = busy.get(interface, 0.0) + part",
            "busy[interface] = part",
        ),
    ],
    hints=[
        "Only lines with [send] and NET are of bytes that leave a node. Take the channel, the sender, the wire and the "
        "number of the interface from each.",
        "A rank sends 2 (n - 1) / n of the tensor in all, and 1 / channels of that in each channel.",
        "Add up what each interface of each node sends. The busiest of them, at the rate of its wire, is what a step "
        "waits for.",
    ],
    why="Nothing fails when NCCL falls back to TCP, or sends all channels through one interface: only steps get slow. "
    "Ten lines of its log and this sum say what the all-reduce should take, to be compared with what it takes.",
)
def wire_time(log, ranks, per_node, nbytes, rates):
    """Read NCCL's log of all ranks: return (wire, seconds) for what goes between nodes in an all-reduce of ``nbytes``.

    Each channel is a ring through all ``ranks``, and all channels have equal parts of the tensor. A line for each end
    of a connection tells, of channel 3 from rank 15 to rank 6, that it goes out on the sender's interface 0:

    ``node1:86:110 [7] NCCL INFO Channel 03/0 : 15[7] -> 6[6] [send] via NET/IB/0/GDRDMA``

    Ranks 0 to ``per_node`` - 1 are on node 0, and so on. wire: "IB" or "Socket", or "" if nothing leaves a node.
    seconds: how long the interface is busy that sends most. ``rates[wire]`` is the bytes that one interface sends in a
    second; interfaces work at the same time, and latency is left out.
    """
    channels = set(re.findall(r"Channel (\d+)/", log))
    # ? What does each interface of each node send, and how long does that take?
    part = 2 * (ranks - 1) / ranks * nbytes / len(channels)
    wire, busy = "", {}
    for sender, net, number in re.findall(r": (\d+)\[\d+\] -> \d+\[\d+\] \[send\] via NET/(\w+)/(\d+)", log):
        wire, interface = net, (int(sender) // per_node, number)
        busy[interface] = busy.get(interface, 0.0) + part
    seconds = max(busy.values(), default=0.0) / rates[wire] if wire else 0.0
    return wire, seconds
    # .
