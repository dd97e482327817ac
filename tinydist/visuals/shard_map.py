"""Shard placement at one or several points in time: ranks x layers, in the owners' colors."""

from itertools import pairwise

import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch

from ..annotate import PURPOSES
from ..launching.launch import Run
from ..rules import each_of, many, one_of, stated, validate
from .canvas import picture
from .figure import HEADING, SMALL, TEXT, WIDTH, Picture
from .formatting import bytes_text, ranks_text, tell
from .memory_states import MemoryStates
from .ownership_grid import (
    HEAD,
    MODEL_STATES,
    Cells,
    draw_cells,
    draw_heads,
    handles,
    heads_height,
    labels_of,
    moves,
    that_ran,
)
from .palette import RANKS, SOFT
from .scene import MOST_RANKS, Scene, a_moment, name_of
from .time_axis import GAP, RIGHT, TOP, draw_legend, inches_of, legend_height

APART, CELL, TITLE = 0.4, 0.44, 0.26  # inches: between two panels; a cell, at most
LEGEND = 3.0  # inches: of two names beside one another


some_moments = stated("a moment, or a list of some", lambda v: a_moment(v) or each_of(a_moment)(v))


@validate(run=Run, moment=some_moments, purposes=each_of(one_of(PURPOSES)), labels=each_of(str), ranks=many)
@picture
def shard_map(run, moment=None, purposes=None, labels=None, ranks=None):
    """Draw the shard placement of each layer at ``moment`` (None: between backward and the optimizer's step).

    Several purposes (None: parameters, gradients, optimizer states) at one moment; or, with a list of moments, one
    purpose (None: parameters) at each of these, with arrows for what moves between them. ``labels``: of the ledger, for
    the columns (None: the layers).
    """
    scene = Scene("shard_map", run.trace, that_ran(run.trace)[:MOST_RANKS] if ranks is None else ranks)
    cells = Cells(run.trace, scene.ranks, labels_of(scene, (purposes or MODEL_STATES)[0], labels))
    states = MemoryStates(scene, scene.ranks[0], purposes or MODEL_STATES)
    if isinstance(moment, list):
        return at_moments(scene, cells, moment, states)
    when = rests(scene, states) if moment is None else states.when(moment)[0]
    grids = {purpose: cells.at(when, purpose) for purpose in states.kinds}
    if not purposes:
        grids = {purpose: grid for purpose, grid in grids.items() if any(map(any, grid))} or grids
    first = when[states.rank] if moment is None else when
    tell(summary(states, grids, first))
    columns = f"{cells.word} {', '.join(cells.names)}".strip()
    who = f"What each of {ranks_text(len(scene.ranks))} holds"
    return draw(cells, grids, f"{who} of {columns}, by owner: {', '.join(grids)}.")


def rests(scene, states):
    """When each rank is between backward and the optimizer's step; those that are not drawn: as the first is."""
    found = {rank: MemoryStates(scene, rank, states.kinds).rest_time for rank in scene.ranks}
    return [found.get(rank, found[states.rank]) for rank in scene.everyone]


def summary(states, purposes, when):
    held = states.scene.trace.memory[states.rank].at(when)
    parts = ", ".join(f"{purpose} {bytes_text(held.get(purpose, 0))}" for purpose in purposes)
    return f"rank {states.rank} holds {parts}"


def at_moments(scene, cells, moments, states):
    """A panel for each moment, with what arrives from one to the next."""
    purpose, whens = states.kinds[0], [states.when(each) for each in moments]
    grids = {name_of(each): cells.at(asked, purpose) for each, (asked, _) in zip(moments, whens, strict=True)}
    arrows = [moves(scene.trace, cells.ranks, *span) for span in pairwise(seconds for _, seconds in whens)]
    return draw(cells, grids, f"Who holds which {purpose} at {len(grids)} moments: {', '.join(grids)}.", arrows)


def draw(cells, grids, alt, arrows=()):
    """A panel for each of ``grids``, title -> grid, beside one another; ``arrows`` between two: (source, to)."""
    panels = Panels(cells, grids)
    figure = plt.figure(figsize=(panels.width, panels.height), FigureClass=Picture, layout="none", alt=alt)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, panels.width)
    axes.set_ylim(panels.height, 0)
    axes.axis("off")
    panels.draw_rows(axes)
    for number, (title, grid) in enumerate(grids.items()):
        panels.draw(axes, number, title, grid)
    for number, pairs in enumerate(arrows):
        panels.draw_arrows(axes, number, pairs)
    draw_legend(figure, panels.handles, panels.left, panels.height - panels.legend, panels.room)
    return figure


class Panels:
    """Where everything stands, in inches."""

    def __init__(self, cells, grids):
        self.handles = handles(list(grids.values()))
        self.cells, self.names = cells, [f"rank {rank}" for rank in cells.ranks]
        self.left = max(inches_of(name, TEXT) for name in [*self.names, cells.word]) + 3 * GAP
        self.step = (WIDTH - self.left - RIGHT + APART) / len(grids)
        self.side = min(CELL, (self.step - APART) / len(cells.names))
        self.wide = self.side * len(cells.names)
        self.step = min(self.step, self.wide + 3 * APART)
        *_, title = (inches_of(title, HEADING, "bold") for title in grids)  # it may be wider than what it is above
        self.room = max(self.step * (len(grids) - 1) + (self.wide + max(self.wide, title)) / 2, LEGEND)
        self.width = self.left + self.room + RIGHT
        self.legend = legend_height(self.handles, self.room)
        self.top = TOP + TITLE + heads_height(cells.names, self.side)
        self.height = self.top + self.side * len(self.names) + 0.1 + self.legend

    def middle(self, row):
        return self.top + (row + 0.5) * self.side

    def draw_rows(self, axes):
        for row, name in enumerate(self.names):
            axes.text(self.left - GAP, self.middle(row), name, ha="right", va="center_baseline", fontsize=TEXT)
        style = {"ha": "right", "va": "bottom", "fontsize": SMALL, "color": SOFT}
        axes.text(self.left - GAP, self.top - HEAD, self.cells.word, **style)

    def draw(self, axes, number, title, grid):
        left = self.left + number * self.step
        axes.text(left + self.wide / 2, TOP, title, ha="center", va="top", fontsize=HEADING, fontweight="bold")
        draw_heads(axes, self.cells.names, left, self.top - HEAD, self.side)
        draw_cells(axes, grid, left, self.top, self.side, self.side)

    def draw_arrows(self, axes, number, pairs):
        start = self.left + number * self.step + self.wide
        for source, to in pairs:
            ends = [(start + 0.04, self.middle(self.cells.ranks.index(source)))]
            ends.append((self.left + (number + 1) * self.step - 0.04, self.middle(self.cells.ranks.index(to))))
            color = RANKS[source % len(RANKS)]
            style = {"arrowstyle": "-|>", "mutation_scale": 7, "shrinkA": 0, "shrinkB": 0, "linewidth": 0.9}
            axes.add_patch(FancyArrowPatch(*ends, color=color, **style))
