"""A model that is cut in several ways: which ranks hold which part of which layer.

replica 0                replica 1
embedding [ 0 ][ 1 ]     [ 2 ][ 3 ]      a box is a part of a layer, and has the rank that holds it;
block 1   [ 0 ][ 1 ]     [ 2 ][ 3 ]      what one rank has is framed
block 2   [ 4 ][ 5 ]     [ 6 ][ 7 ]
"""

from matplotlib.patches import Rectangle

from ..rules import each_of, named, part, stated, validate, whole
from .canvas import blocks, canvas, inside, picture
from .figure import TEXT
from .formatting import counted, tell
from .palette import INK, PAPER, RANKS, tint

ROW, GAP = 0.8, 0.3  # of a row: its height; of a matrix: between two replicas

a_span = stated(
    "(from, to), parts of 1",
    lambda pair: isinstance(pair, tuple) and len(pair) == 2 and all(map(part, pair)) and pair[0] < pair[1],
)


@validate(held=each_of(named(a_span)), rank=whole)
@picture
def model_cut(held, rank):
    """Draw which part of each layer each rank holds. ``held``: for each rank, layer -> (from, to) of its matrices.

    Ranks that hold the same are replicas, and stand in panels beside one another. What ``rank`` holds is framed.
    """
    if rank >= len(held):
        raise ValueError(f"model_cut: held has ranks 0 to {len(held) - 1}, but rank {rank} is to be marked")
    layers = list(dict.fromkeys(layer for mine in held for layer in mine))
    copies = {}
    for number, mine in enumerate(held):
        copies.setdefault(tuple(mine.items()), []).append(number)
    replicas = max(map(len, copies.values()))
    [first, *_], [*_, last] = held[rank], held[rank]
    start, end = held[rank][first]
    same = next(ranks for ranks in copies.values() if rank in ranks)
    others = [each for each in same if each != rank]
    whose = f", as rank {' and '.join(map(str, others))} does" if others else ""
    what = f"{first} to {last}" if first != last else first
    tell(f"rank {rank} holds {what}, of each matrix {100 * start:.0f} to {100 * end:.0f} %{whose}")
    said = f"{counted(len(layers), 'layer')} of a model on {counted(len(held), 'rank')}, {counted(replicas, 'replica')}"
    figure, axes = canvas(f"{said}: which part each rank holds; rank {rank} is framed.", 0.5 + 0.27 * len(layers))
    for ranks in copies.values():
        for place, number in enumerate(ranks):
            draw_rank(axes, held[number], number, place * (1 + GAP), layers, number == rank)
    for place in range(replicas):
        axes.text(place * (1 + GAP) + 0.5, 0.4, f"replica {place}", ha="center", va="bottom", fontweight="bold")
    for row, layer in enumerate(layers):
        axes.text(-0.04, -row - ROW / 2, layer, ha="right", va="center", fontsize=TEXT)
    axes.set(xlim=(-0.45, replicas * (1 + GAP) - GAP + 0.02), ylim=(-len(layers), 1.3))
    axes.axis("off")
    return figure


def draw_rank(axes, mine, number, left, layers, marked):
    color = tint(RANKS[number % len(RANKS)], 0.55 if number >= len(RANKS) else 0)
    for layer, (start, end) in mine.items():
        row = layers.index(layer)
        box = (left + start, -row - ROW, end - start, ROW)
        blocks(axes, [box], facecolor=color, edgecolor=PAPER, linewidth=0.8)
        inside(axes, box, str(number), color)
        if marked:
            axes.add_patch(Rectangle(box[:2], *box[2:], facecolor="none", edgecolor=INK, linewidth=2.4, zorder=4))
