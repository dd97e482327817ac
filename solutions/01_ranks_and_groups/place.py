"""Where a rank lives, on nodes of different sizes."""

from tinydist.lab.author import Values, alone, exercise, mistake


def asked(rank, *devices):
    return alone(lambda: (rank, list(devices)), f"rank {rank} on nodes of {', '.join(map(str, devices))} devices")


def test_cases():
    for rank in (5, 0, 1, 2, 3, 4, 6, 7):
        yield asked(rank, 4, 4)
    for rank in range(9):
        yield asked(rank, 4, 2, 3)
    for rank in range(4):
        yield asked(rank, 1, 3)
    yield asked(2, 3)


class Place(Values):
    def general(self, trial, right):
        """Whose place it is, if it is one."""
        (node, local), (_, devices) = trial.returned[0], trial.case.arguments(0)
        if (local, node) == right.returned[0]:
            return ""
        if not 0 <= node < len(devices):
            return f"there is no node {node}: they have the numbers 0 to {len(devices) - 1}"
        if not 0 <= local < devices[node]:
            return (
                f"node {node} has no local rank {local}: it has {devices[node]} devices, from 0 to {devices[node] - 1}"
            )
        return f"this is the place of rank {sum(devices[:node]) + local}: ranks fill node 0, then node 1, and so on"


@exercise(
    title="Place a rank",
    minutes=5,
    difficulty=1,
    test_cases=test_cases,
    targets=[
        Place("for each rank, on nodes of equal and of different sizes", ["the node", "the local rank"], whole=True)
    ],
    mistakes=[
        mistake(
            "The nodes differ in size: one division by the size of the first is right only where all are alike",
            "    for node, devices in enumerate(devices_of_node):\n"
            "        if rank < devices:\n"
            "            return node, rank\n"
            "        rank -= devices",
            "    return divmod(rank, devices_of_node[0])",
        ),
        mistake(
            "This is the rank among all, where the number within the node is asked for: each node counts its GPUs "
            "from 0",
            "    for node, devices in enumerate(devices_of_node):\n        if rank < devices:\n"
            "            return node, rank\n",
            "    asked = rank\n    for node, devices in enumerate(devices_of_node):\n        if rank < devices:\n"
            "            return node, asked\n",
        ),
        mistake(
            "A node of 4 devices has ranks 0 to 3: the next rank is on the next node",
            "rank < devices",
            "rank <= devices",
        ),
        mistake("Nodes and local ranks count from 0", "return node, rank", "return node + 1, rank + 1"),
        mistake(
            "The two are exchanged: the node first, then the local rank",
            "return node, rank",
            "return rank, node",
        ),
        mistake(
            "Ranks fill one node and then the next. Here they are dealt out in turn, one to each node",
            "    for node, devices in enumerate(devices_of_node):\n"
            "        if rank < devices:\n"
            "            return node, rank\n"
            "        rank -= devices",
            "    local_rank, node = divmod(rank, len(devices_of_node))\n    return node, local_rank",
        ),
    ],
    hints=[
        "Where all nodes have 4 devices it is divmod(rank, 4). What does the remainder mean?",
        "Walk from node to node. A rank that does not fit on a node goes on to the next one, with how many fewer "
        "before it?",
    ],
    why="torchrun wants the same number of processes on each node, but other launchers such as Slurm or MPI do not. "
    "A program that computes its local rank by a division, and does not ask the launcher, then takes another "
    "rank's GPU.",
)
def place(rank, devices_of_node):
    """Return (node, local rank) of a rank.

    Node n has ``devices_of_node[n]`` devices, and ranks fill one node after the other.
    With [4, 2, 3], ranks 0 to 3 are on node 0, 4 and 5 on node 1, and 6 to 8 on node 2.
    """
    # ? Is it on the first node? If not, where is it on the nodes that remain?
    for node, devices in enumerate(devices_of_node):
        if rank < devices:
            return node, rank
        rank -= devices
