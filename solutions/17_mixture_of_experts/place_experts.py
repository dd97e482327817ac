"""Which experts go to which of two nodes, so that the fewest rows cross, if a token is sent to a node once."""

from itertools import combinations

import torch

from tinydist.lab.author import Part, Wrong, alone, exercise, mistake

from .chapter import BY_HAND


def case(N, E, k, seed, about="", nodes=None):
    def arguments():
        draw = torch.Generator().manual_seed(seed)
        topics = torch.randint(0, 2, (N,), generator=draw) if nodes is None else torch.tensor(nodes)
        taste = torch.randn(2, E, generator=draw) * 1.5
        scores = torch.randn(N, E, generator=draw) + taste[topics]
        pairs = torch.arange(E).view(-1, 2).flip(1).flatten()  # neighbours like the same tokens
        chosen = (scores + scores[:, pairs] / 2).topk(k).indices
        home = (topics + (torch.rand(N, generator=draw) < 0.2)) % 2
        return chosen.tolist(), home.tolist(), E

    return alone(arguments, f"{N} tokens, {k} of {E} experts{about}")


def test_cases():
    yield alone(lambda: ([[0], [1], [1]], [0, 1, 1], 2), "three tokens, 1 of 2 experts")
    yield alone(lambda: ([[1], [0], [0]], [0, 1, 1], 2), "three tokens whose experts are on the other node")
    yield alone(lambda: ([[0, 1], [2, 3], [0, 2]], [0, 0, 0], 4), "three tokens of node 0, 2 of 4 experts")
    yield case(12, 4, 1, 1)
    yield case(20, 4, 2, 2)
    yield case(40, 6, 2, 3)
    yield case(60, 8, 3, 4)
    yield case(60, 8, 4, 5, ", all of node 0", nodes=[0] * 60)


def place(answer, chosen, nodes, E):
    """To explain an error, the lab tries other E: all placements of 512 experts would never end."""
    if E > 8:
        raise ValueError("E is at most 8")
    found = answer(chosen, nodes, E)
    first = found.get("node 0") if isinstance(found, dict) else None
    if isinstance(first, list | tuple) and len(first) != E // 2:
        raise Wrong(f"node 0 has {len(first)} of {E} experts in your placement: each node has E/2, {E // 2} here")
    return found


COST = "any(place[e] != node for e in experts)"


@exercise(
    title="Place the experts",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    program=place,
    targets=[
        BY_HAND,
        Part("rows", "rows", "the fewest rows that cross between the nodes in a dispatch, of all placements"),
        Part("in order", "in order", "how many cross if node 0 has the first half of the experts"),
        Part("node 0", "node 0", "the experts of node 0, in order; of several as good the first in lexical order"),
    ],
    mistakes=[
        mistake(
            "Each assignment was counted. A token is sent to the other node once, however many experts it has there",
            COST,
            "sum(place[e] != node for e in experts)",
        ),
        mistake(
            "Tokens were counted that stay: a row crosses if one of its experts is on another node than the token",
            COST,
            "any(place[e] == node for e in experts)",
        ),
        mistake(
            "A row crosses if *any* of a token's experts is on the other node, and not only if all are",
            COST,
            "all(place[e] != node for e in experts)",
        ),
        mistake(
            "Expert 0 need not be on node 0: tokens have a node, so the two nodes are not alike. Try all placements",
            "list(combinations(range(E), E // 2))",
            "[each for each in combinations(range(E), E // 2) if 0 in each]",
        ),
        mistake(
            "That is the worst placement: take the one with the fewest rows",
            "best = min(placements, key=crossing)",
            "best = max(placements, key=crossing)",
        ),
        mistake(
            "Of several placements that are as good, the first in lexical order is asked for",
            "best = min(placements, key=crossing)",
            "best = min(reversed(placements), key=crossing)",
        ),
        mistake("Those are the experts of node 1", "list(best)}", "[e for e in range(E) if e not in best]}"),
        mistake(
            "The first half of the experts is on node 0, not those with even numbers",
            "range(E // 2))",
            "range(0, E, 2))",
        ),
    ],
    hints=[
        "Write the cost of one placement first: for each token, does any of its experts live on the other node?",
        "Both nodes have E/2 experts: itertools.combinations(range(E), E // 2) has all placements, in lexical order.",
    ],
    why="With 256 experts nobody tries all placements, and deduplication makes it harder: two experts that the same "
    "tokens like cost one row if they are together. DeepSeek limits the nodes of a token in the router instead, and "
    "publishes a balancer of experts for serving, EPLB, that keeps experts of a group on a node.",
)
def place_experts(chosen, nodes, E):
    """The placement of ``E`` experts on two nodes, E/2 each, with which the fewest rows cross in a dispatch.

    ``chosen`` is a list with the experts of each token, ``nodes`` a list with the node, 0 or 1, that each token is on.
    A token is sent to the other node at most once, however many of its experts are there. E is even and at most 8.

    Return {"rows": ..., "in order": ..., "node 0": ...}: the rows that cross with the best placement; those that cross
    if node 0 has experts 0 to E/2 - 1; and the list of node 0's experts in the best placement, in order. If several
    are as good, take the first in lexical order.
    """
    # ? how many rows cross, if node 0 has these experts?
    # ? the best of all placements

    def crossing(first):
        place = [0 if e in first else 1 for e in range(E)]
        return sum(any(place[e] != node for e in experts) for experts, node in zip(chosen, nodes))

    placements = list(combinations(range(E), E // 2))
    best = min(placements, key=crossing)
    return {"rows": crossing(best), "in order": crossing(range(E // 2)), "node 0": list(best)}
