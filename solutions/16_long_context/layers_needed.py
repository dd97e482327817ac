"""After how many layers the last block of a sequence can know of each block, by a layout."""

import random

import torch

from tinydist.attention import sparse_layouts
from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import BY_HAND, SOLVED


def case(about, layout):
    return alone(lambda: (layout.clone(),), f"{about}, {len(layout)} blocks")


def edges(count, *seen):
    layout = torch.zeros(count, count, dtype=torch.bool)
    for query, key in seen:
        layout[query, key] = True
    return layout


def test_cases():
    yield case("each sees itself and the one before", sparse_layouts.window(6, 3, causal=True))
    yield case("each sees itself alone", torch.eye(5, dtype=torch.bool))
    yield case("a causal Longformer, whose first block is global", sparse_layouts.longformer(9, 3, causal=True))
    yield case("the same, bidirectional", sparse_layouts.longformer(9, 3))
    yield case("fixed", sparse_layouts.fixed(12, causal=True))
    yield case("a chain and a way round it", edges(5, (4, 3), (3, 2), (2, 1), (1, 0), (4, 1)))
    yield case("a later block tells of an earlier one", edges(4, (3, 1), (1, 2), (2, 0)))
    yield case("one block", edges(1))
    generator = random.Random(0)
    for count in (7, 11, 16):
        seen = [(i, j) for i in range(count) for j in range(count) if generator.random() < 1.5 / count]
        yield case("drawn at random", edges(count, *seen))


@exercise(
    title="How many layers until it is known?",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("neither the library's hops nor a graph's solver", BY_HAND, SOLVED),
        Values(
            "for each block the fewest layers after which the last block can know of it: 0 for itself, -1 for never; "
            "causal layouts and others",
            whole=True,
        ),
    ],
    mistakes=[
        mistake(
            "Rows and columns are exchanged: layout[i, j] says that block i sees block j",
            "layout[known, block]",
            "layout[block, known]",
        ),
        mistake(
            "What the last block sees comes with what was seen there a layer before: go on until nothing is new",
            "while new:",
            "if new:",
        ),
        mistake("What is seen in one layer needs 1, and only the last block itself 0", "layers = 0", "layers = -1"),
        mistake("A block to which no way leads is never known: -1", "get(block, -1)", "get(block, 0)"),
        mistake(
            "Each layer goes on from what is new, and not from every block that anybody sees",
            "any(layout[known, block] for known in new)",
            "layout[:, block].any()",
        ),
    ],
    hints=[
        "Go backwards from the last block. Before the first layer it knows itself alone.",
        "With one layer it knows what it sees. With two, also what those blocks see: they have it after the first.",
        "Keep the blocks that are new with each layer. The next layer's are those that a new one sees, and that are "
        "not known yet. If there are none, the rest is never known.",
    ],
    why="This is what a layout costs besides quality: depth. A causal window of w blocks needs (n - 1)/(w - 1) layers, "
    "and a global first block doesn't help, since it sees nobody. One full layer makes it 1 from there on, which is "
    "why models of today mix windows with full layers.",
)
def layers_needed(layout):
    """After how many layers the last block can know of each block: a list of whole numbers, -1 for never.

    ``layout``: bool [n, n], where layout[i, j] says that in each layer block i sees block j. Before the first layer a
    block knows itself alone; a layer adds what the blocks that it sees knew before, and nothing is forgotten.
    """
    # ? What does the last block know without a layer?
    # ? Which blocks are new with one layer more?
    # ? When does nothing new come?
    blocks = range(len(layout))
    needed = {len(layout) - 1: 0}
    new = [len(layout) - 1]
    layers = 0
    while new:
        layers += 1
        seen = [block for block in blocks if any(layout[known, block] for known in new)]
        new = [block for block in seen if block not in needed]
        needed.update(dict.fromkeys(new, layers))
    return [needed.get(block, -1) for block in blocks]
