"""A graph in rows: each box stands below all that it needs, and arrows lead from each to what needs it.

A longer arrow has a place in each row that it passes, which it shares with the others from the same box.
"""

from collections import Counter
from itertools import combinations, pairwise, permutations
from typing import NamedTuple

from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path

from ..rules import each_of, named, stated, validate
from .canvas import canvas, inside, picture
from .formatting import tell
from .palette import INK, PALE, SOFT

BOX, PASSING, HIGH, APART, BETWEEN = 126, 2, 32, 10, 30  # pixels: widths, a box's height, from one to the next, of rows

texts = named(stated("a text", lambda value: isinstance(value, str)))

MOST_BOXES = 5  # in a row: of more, the names could not be read in a notebook
MOST_TRIED = 6  # in a row, in every order


class Passing(NamedTuple):
    """A place in a row that arrows from a box pass."""

    above: object
    row: int


@validate(names=stated("a dict, key -> name", texts), arrows=each_of(stated("(key, key)", lambda v: len(v) == 2)))
@picture
def graph(names, arrows):
    """Draw ``names``, key -> what its box says, and ``arrows``, (key, key of what needs it), from top to bottom."""
    for key in {key for arrow in arrows for key in arrow} - set(names):
        raise ValueError(f"graph: an arrow leads from or to {key!r}, which has no name")
    rows, paths = placed(names, arrows)
    tell(f"boxes: {len(names)}; arrows: {len(arrows)}")
    needs = [f"{names[below]} needs {names[above]}" for above, below in arrows]
    high = len(rows) * (HIGH + BETWEEN) - BETWEEN + 4
    width = max(720, *(width_of(row) + 4 for row in rows))
    figure, axes = canvas(f"{'; '.join(needs)}.", high / 100, width / 100)
    axes.set_position((0, 0, 1, 1))
    axes.axis("off")
    axes.set_xlim(-width / 2, width / 2)
    axes.set_ylim(high, 0)
    at = {each: (x, 2 + n * (HIGH + BETWEEN)) for n, row in enumerate(rows) for each, x in places(row)}
    for path in paths:
        axes.add_patch(arrow([at[each] for each in path]))
    for key, name in names.items():
        left, top = at[key][0] - BOX / 2, at[key][1]
        box = FancyBboxPatch((left, top), BOX, HIGH, "round,pad=0,rounding_size=6", facecolor=PALE, edgecolor=SOFT)
        axes.add_patch(box)
        inside(axes, (left, top + HIGH, BOX, -HIGH), name, PALE, color=INK)
    return figure


def arrow(points):
    (x, y), *others = points
    corners, codes = [(x, y + HIGH)], [Path.MOVETO]
    for to_x, to_y in others:
        half = (y + HIGH + to_y) / 2
        corners += [(x, half), (to_x, half), (to_x, to_y)]
        codes += [Path.CURVE4] * 3
        if (to_x, to_y) != points[-1]:
            corners.append((to_x, to_y + HIGH))
            codes.append(Path.LINETO)
        x, y = to_x, to_y
    return FancyArrowPatch(path=Path(corners, codes), arrowstyle="-|>", mutation_scale=8, color=SOFT, linewidth=1)


def placed(names, arrows):
    """Rows of keys and of places that arrows pass; and each arrow as the row of what it goes through."""
    row_of = row_of_each(names, arrows)
    rows = [[key for key in names if row_of[key] == row] for row in range(1 + max(row_of.values()))]
    paths = []
    for above, below in arrows:
        passed = [Passing(above, row) for row in range(row_of[above] + 1, row_of[below])]
        paths.append([above, *passed, below])
        for each in passed:
            if each not in rows[each.row]:
                rows[each.row].append(each)
    steps = [step for path in paths for step in pairwise(path)]
    best, length = rows, float("inf")
    while (now := length_of(best, steps)) < length:
        length = now
        for n, row in enumerate(best):
            orders = ([*best[:n], list(order), *best[n + 1 :]] for order in orders_of(row))
            best = min(orders, key=lambda rows: length_of(rows, steps))
    return best, paths


def row_of_each(names, arrows):
    """Of each key the first row below all that it needs in which there is room."""
    depth = dict.fromkeys(names, 0)
    for _ in names:
        for above, below in arrows:
            depth[below] = max(depth[below], depth[above] + 1)
    row_of, boxes = {}, Counter()
    for key in sorted(names, key=depth.get):  # what it needs comes before it
        row = 1 + max((row_of[above] for above, below in arrows if below == key), default=-1)
        while boxes[row] == MOST_BOXES:
            row += 1
        row_of[key] = row
        boxes[row] += 1
    return row_of


def orders_of(row):
    """All of a short row, and of a longer one those in which two have changed places."""
    if len(row) <= MOST_TRIED:
        yield from permutations(row)
        return
    yield row
    for first, second in combinations(range(len(row)), 2):
        order = list(row)
        order[first], order[second] = row[second], row[first]
        yield order


def length_of(rows, steps):
    """How far the arrows go to the side."""
    at = {each: x for row in rows for each, x in places(row)}
    return sum(abs(at[above] - at[below]) for above, below in steps)


def width_of(row):
    return sum(map(wide, row)) + APART * (len(row) - 1)


def wide(each):
    return PASSING if isinstance(each, Passing) else BOX


def places(row):
    """Each with its middle, from the middle of the row."""
    left = -width_of(row) / 2
    for each in row:
        yield each, left + wide(each) / 2
        left += wide(each) + APART
