"""Process groups of a device mesh: one row of ranks per axis, grouped by node, one color per group."""

from matplotlib.patches import Rectangle

from ..hardware import Cluster, default_cluster
from ..rules import each_of, named, validate, whole
from .canvas import blocks, canvas, inside, picture
from .figure import SMALL
from .formatting import counted, tell
from .palette import INK, LIGHT, PAPER, RANKS, tint

ROW, GAP = 1.0, 0.6  # of a cell: its height, between two nodes
MOST_GROUPS = 2 * len(RANKS)  # more have no color of their own

axes_of_groups = named(each_of(each_of(whole)))


@validate(groups=axes_of_groups, cluster=Cluster, rank=whole)
@picture
def groups(groups, cluster=None, rank=None):
    """Draw ``groups``, axis -> lists of ranks, on ``cluster`` (nodes of 8 by default); mark those of ``rank``."""
    ranks = sorted(each for group in next(iter(groups.values())) for each in group)
    for axis, of_axis in groups.items():
        check(axis, of_axis, ranks)
    cluster = cluster or default_cluster(len(ranks))
    tell("; ".join(f"{axis}: {in_words(of_axis, cluster)}" for axis, of_axis in groups.items()))
    nodes = cluster.node_of(ranks[-1]) + 1
    left = {each: each + GAP * cluster.node_of(each) for each in ranks}
    marked = "" if rank is None else f"; those of rank {rank} are marked"
    alt = f"A row of {len(ranks)} ranks on {counted(nodes, 'node')} for each of {', '.join(groups)}{marked}."
    figure, axes = canvas(alt, 0.55 * len(groups) + 0.35)
    for row, (axis, of_axis) in enumerate(groups.items()):
        draw_row(axes, axis, of_axis, -2 * row * ROW, left, rank)
    for node in range(nodes):
        first = node * cluster.devices_per_node
        axes.text(left[first], 1.25 * ROW, f"node {node}", fontsize=SMALL, va="bottom")
    room = max(max(left.values()) + 1.1, 2 * cluster.devices_per_node)  # a few ranks are not blown up
    axes.set(xlim=(-2.2, room), ylim=(-2 * (len(groups) - 1) * ROW - 0.2, 2.2 * ROW))
    axes.axis("off")
    return figure


def check(axis, of_axis, ranks):
    """Each rank is in one group of each axis."""
    there = sorted(each for group in of_axis for each in group)
    if there != ranks:
        raise ValueError(f"groups: those of {axis} must have each of {counted(len(ranks), 'rank')} once, got {there}")
    several = [group for group in of_axis if len(group) > 1]
    if len(several) > MOST_GROUPS:
        raise ValueError(f"groups: at most {MOST_GROUPS} can be told apart, but {axis} has {len(several)}")


def in_words(of_axis, cluster):
    if all(len(group) == 1 for group in of_axis):
        return "each rank alone"
    across = sum(len({cluster.node_of(each) for each in group}) > 1 for group in of_axis)
    where = {0: "each inside a node", len(of_axis): "each across nodes"}.get(across, f"{across} of them across nodes")
    sizes = sorted({len(group) for group in of_axis})
    return f"{counted(len(of_axis), 'group')} of {' or '.join(map(str, sizes))}, {where}"


def color_of(number):
    """Of a group: a second time pale."""
    return tint(RANKS[number % len(RANKS)], 0.55 if number >= len(RANKS) else 0)


def draw_row(axes, axis, of_axis, bottom, left, rank):
    axes.text(-0.4, bottom + ROW / 2, axis, ha="right", va="center", fontweight="bold")
    for number, group in enumerate(of_axis):
        color = color_of(number) if len(group) > 1 else LIGHT
        boxes = [(left[each], bottom, 1, ROW) for each in group]
        blocks(axes, boxes, facecolors=color, edgecolors=PAPER, linewidths=0.5)
        for each, box in zip(group, boxes):
            inside(axes, box, str(each), color, together=axes)
        if rank in group:
            for x, y, width, height in boxes:
                axes.add_patch(Rectangle((x, y), width, height, facecolor="none", edgecolor=INK, linewidth=2, zorder=4))
