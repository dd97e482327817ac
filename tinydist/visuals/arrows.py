"""Which way a message goes in a table of ranks: it never crosses a text.

A1 | --+      to the next row straight through the gap between them; to others through the gutter at the right of
 v     |      the column, in which those that would meet have lanes of their own
A1 |   |
A1 | <-+
"""

from collections import Counter

from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path

from .cells import letters_in
from .palette import INK


def arrivals(table, before, messages):
    """(source, destination, part): for each cell that has changed, the message that has changed it.

    Of several to one rank it is that of a source which had what is new; of several such, the one with fewest cells yet.
    """
    found = []
    for destination in dict.fromkeys(destination for _, destination in messages):
        sources, told = [source for source, other in messages if other == destination], Counter()
        for part, (new, old) in enumerate(zip(table[destination], before[destination])):
            if new != old:
                added = set(letters_in(new)) - set(letters_in(old))
                had = [source for source in sources if added <= set("".join(before[source]))]
                source = min(had or sources, key=lambda source: told[source])
                told[source] += 1
                found.append((source, destination, part))
    return found


def lanes_of(arrows):
    """Arrow -> its lane in the gutter, counted from the cells; None for those between neighbors."""
    lanes = {}
    for arrow in sorted(arrows, key=lambda arrow: abs(arrow[0] - arrow[1])):
        taken = {lanes[other] for other in lanes if other[2] == arrow[2] and meet(arrow, other)}
        near = abs(arrow[0] - arrow[1]) == 1
        lanes[arrow] = None if near else next(lane for lane in range(len(arrows)) if lane not in taken)
    return lanes


def meet(one, other):
    """Do the rows that they pass, with those where they begin and end, have one in common?"""
    return max(min(one[:2]), min(other[:2])) <= min(max(one[:2]), max(other[:2]))


def draw_arrow(axes, arrow, lane, cell, lane_width):
    """``cell`` is (half its width, half its height); a cell's middle is at (part, rank)."""
    source, destination, part = arrow
    wide, high = cell
    if lane is None:
        down = 1 if destination > source else -1
        way = [(part, source + down * high), (part, destination - down * high)]
    else:
        x = part + wide + (lane + 1) * lane_width
        low = 0.3 * high if destination > source else -0.3 * high  # beside an arrow that comes in
        way = [(part + wide, source + low), (x, source + low), (x, destination - low), (part + wide, destination - low)]
    look = {"arrowstyle": "-|>,head_length=3,head_width=1.8", "linewidth": 1.1, "color": INK, "joinstyle": "miter"}
    axes.add_patch(FancyArrowPatch(path=Path(way), shrinkA=0, shrinkB=0, zorder=4, **look))
