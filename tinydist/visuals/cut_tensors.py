"""Tensors of a calculation as each rank holds them: in their shapes, with the part that is there in its place.

rank 0   [x]  ×  [▌ ]  =  [▌ ]        a part: some rows or columns, in the color of the rank
rank 1   [x]  ×  [ ▐]  =  [ ▐]        a copy of the whole: grey
                                      a summand: of full size, with a plus; the sum over the ranks is the whole
"""

import matplotlib.pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.patches import Patch

from ..launching.launch import Run
from ..rules import count, each_of, named, stated, validate
from .canvas import blocks, inside, picture
from .figure import HEADING, SMALL, TEXT, WIDTH, Picture
from .formatting import ranks_text, tell
from .memory_states import MemoryStates
from .ownership_grid import COPY, Cells, color_of
from .palette import GREY, PAPER, SOFT, tint
from .scene import Scene, a_moment
from .time_axis import GAP, RIGHT, TOP, draw_legend, inches_of, legend_height

SIGN, SPACE, TITLE, HEAD = 0.24, 0.12, 0.26, 0.2  # inches: of a sign, beside it, above a panel, above its tensors
LARGEST, LOWEST = 0.11, 0.2  # inches: of a row or column at most; a tensor is at least so high
PALER = 0.6

a_shape = stated(
    "(rows, columns), or None for a sign",
    lambda value: value is None or (isinstance(value, tuple) and len(value) == 2 and all(map(count, value))),
)


@validate(run=Run, moment=a_moment, panels=named(named(a_shape)), summands=each_of(str))
@picture
def cut_tensors(run, moment, panels, summands=()):
    """Draw tensors of ``run`` at ``moment``: title of a panel -> {tensor: its whole shape}.

    A tensor is what ``tinydist.label(part, "title.tensor", shard, dim)`` has named: without ``shard``, a whole copy.
    A name with None for a shape is a sign between two tensors. ``summands``: names of those that are to be added up.
    """
    scene = Scene("cut_tensors", run.trace)
    when = MemoryStates(scene, scene.ranks[0], ["activations"]).when(moment)[0]
    labels = [f"{title}.{name}" for title, shapes in panels.items() for name, shape in shapes.items() if shape]
    cells = Cells(run.trace, scene.ranks, {label: label for label in labels})
    parts = {}
    for rank, row in zip(scene.ranks, cells.at(when, "activations")):
        for label, boxes in zip(labels, row):
            title, name = label.rsplit(".", 1)
            added = [(0.0, 0.0, 1.0, 1.0, summand_color(rank))]
            parts[title, name, rank] = added if name in summands else boxes
    tell("; ".join(f"{title}: {words(title, shapes, parts, summands)}" for title, shapes in panels.items()))
    said = ", ".join(panels)
    alt = f"What {ranks_text(len(scene.ranks))} hold of each tensor, and where it lies in the whole: {said}."
    return Drawing(panels, scene.ranks, parts, summands).draw(alt)


def words(title, shapes, parts, summands):
    """Of the first rank."""
    return ", ".join(f"{name} {held(name, parts[title, name, 0], summands)}" for name, shape in shapes.items() if shape)


def held(name, boxes, summands):
    if name in summands:
        return "a summand"
    if not boxes:
        return "nothing"
    if any(color == COPY for *_, color in boxes):
        return "whole"
    return "columns" if any(width < 1 for _, _, width, _, _ in boxes) else "rows"


def summand_color(rank):
    return to_hex(tint(color_of(rank), PALER))


class Drawing:
    """Panels beside one another where they fit with large cells, else one under the other. All in inches."""

    def __init__(self, panels, ranks, parts, summands):
        self.panels, self.ranks, self.parts, self.summands = panels, ranks, parts, summands
        self.left = max(inches_of(f"rank {rank}", TEXT) for rank in ranks) + 2 * GAP
        room = WIDTH - self.left - RIGHT
        together = sum(map(self.columns, panels.values())), sum(map(self.fixed, panels.values()))
        self.beside = (room - together[1]) / together[0] > LARGEST / 2
        widest = [(room - self.fixed(shapes)) / self.columns(shapes) for shapes in panels.values()]
        self.scale = min(LARGEST, (room - together[1]) / together[0] if self.beside else min(widest))
        rows = max(shape[0] for shapes in panels.values() for shape in shapes.values() if shape)
        self.high = max(LOWEST, rows * self.scale)
        self.panel = TITLE + HEAD + len(ranks) * (self.high + SPACE)

    def columns(self, shapes):
        return sum(shape[1] for shape in shapes.values() if shape)

    def fixed(self, shapes):
        return sum(SPACE if shape else SIGN for shape in shapes.values()) + 2 * SPACE

    def draw(self, alt):
        handles = self.handles()
        panels = 1 if self.beside else len(self.panels)
        height = TOP + panels * self.panel + legend_height(handles)
        figure = plt.figure(figsize=(WIDTH, height), FigureClass=Picture, layout="none", alt=alt)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, WIDTH)
        axes.set_ylim(height, 0)
        axes.axis("off")
        left, top = self.left, TOP
        for title, shapes in self.panels.items():
            self.draw_panel(axes, left, top, title, shapes)
            if self.beside:
                left += self.columns(shapes) * self.scale + self.fixed(shapes)
            else:
                top += self.panel
        draw_legend(figure, handles, self.left, height - legend_height(handles) + 0.04)
        return figure

    def draw_panel(self, axes, left, top, title, shapes):
        axes.text(left, top, title, ha="left", va="top", fontsize=HEADING, fontweight="bold")
        places, at = {}, left
        for name, shape in shapes.items():
            wide = shape[1] * self.scale if shape else SIGN
            places[name] = at, wide
            at += wide + (SPACE if shape else 0)
        for name, (start, wide) in places.items():
            if shapes[name]:
                style = {"ha": "center", "va": "bottom", "fontsize": SMALL}
                axes.text(start + wide / 2, top + TITLE + HEAD - 0.03, name, **style)
        for row, rank in enumerate(self.ranks):
            y = top + TITLE + HEAD + row * (self.high + SPACE)
            if left == self.left:
                style = {"ha": "right", "va": "center_baseline", "fontsize": TEXT}
                axes.text(left - GAP, y + self.high / 2, f"rank {rank}", **style)
            for name, (start, wide) in places.items():
                self.draw_tensor(axes, (start, y, wide), title, name, shapes[name], rank)

    def draw_tensor(self, axes, place, title, name, shape, rank):
        start, y, wide = place
        if shape is None:
            style = {"ha": "center", "va": "center", "fontsize": TEXT}
            axes.text(start + wide / 2 - SPACE / 2, y + self.high / 2, name.strip(), **style)
            return
        high = max(LOWEST, shape[0] * self.scale)
        top = y + (self.high - high) / 2
        boxes = self.parts[title, name, rank]
        filled = [(start + a * wide, top + b * high, w * wide, h * high) for a, b, w, h, _ in boxes]
        blocks(axes, [(start, top, wide, high)], facecolor=PAPER, linewidth=0)
        if filled:
            blocks(axes, filled, facecolor=[color for *_, color in boxes], linewidth=0, zorder=3)
        blocks(axes, [(start, top, wide, high)], facecolor="none", edgecolor=SOFT, linewidth=0.6, zorder=4)
        if name in self.summands:
            inside(axes, (start, top, wide, high), "+", summand_color(rank), fontsize=TEXT, fontweight="bold")

    def handles(self):
        colors = {color for boxes in self.parts.values() for *_, color in boxes}
        seen = [rank for rank in self.ranks if color_of(rank) in colors]
        found = [Patch(facecolor=color_of(rank), label=f"rank {rank}'s part") for rank in seen]
        if COPY in colors:
            found.append(Patch(facecolor=GREY, label="whole, a copy on each rank"))
        if any(name in self.summands for _, name, _ in self.parts):
            found.append(Patch(facecolor=summand_color(self.ranks[0]), label="+  a summand: to be added up"))
        return found
