"""Vertically stacked strips on a common time axis, measured in inches, so that it is known what fits.

sheet.strips[0]   ┌──────────────────────────┐  y: inches below the strip's top
  row name        │ ▇F1▇ ▇F2▇        ▇B2▇    │  x: seconds since ``since``
sheet.strips[1]   ├──────────────────────────┤
                  └──────────────────────────┘
                  0     virtual time (ms)    5
"""

from functools import cache
from math import ceil
from typing import NamedTuple

import matplotlib.pyplot as plt
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from .canvas import blocks, inside, measure
from .figure import SMALL, TEXT, WIDTH, Picture
from .formatting import SECONDS
from .palette import INK, PAPER, WAITING

RIGHT, TOP, AXIS = 0.18, 0.1, 0.52  # inches around the strips
EDGED = 0.04  # inches: a narrower bar would be all edge
MARGIN, CLOSE = 0.05, 0.037  # around a name, both sides together; where names are many
GAP = 0.08  # between a name and its row
TICK = 0.05  # of a bracket
NOTHING = 0.08  # where no legend is


@cache
def inches_of(text, size=SMALL, weight="normal"):
    """How wide a text is."""
    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size, weight=weight), False)
    return width / 72


def legend_lines(handles, room=WIDTH - 0.9):
    """How many it takes, in so many inches."""
    wide = sum(inches_of(handle.get_label()) + 0.36 for handle in handles)
    return max(1, ceil(wide / room))


def legend_height(handles, room=WIDTH - 0.9):
    return 0.12 + 0.17 * legend_lines(handles, room) if handles else NOTHING


def draw_legend(figure, handles, left, top, room=WIDTH - 0.9):
    """With its upper left corner at these inches from that of ``figure``."""
    width, height = figure.get_size_inches()
    place = {
        "loc": "upper left",
        "bbox_to_anchor": (left / width, 1 - top / height),
        "borderaxespad": 0,
        "borderpad": 0,
    }
    style = {"columnspacing": 1.2, "handletextpad": 0.4, "labelspacing": 0.35}
    figure.legend(handles=handles, ncols=ceil(len(handles) / legend_lines(handles, room)), **place, **style)


class Axis(NamedTuple):
    """Of time, where no single scene has it."""

    since: float
    seconds: float
    since_words: str


class Sheet:
    """A picture of strips, of these ``heights``, while ``scene`` lasts. ``names``: what will stand beside its rows.

    ``legend``: handles, above the strips; ``left`` and ``right``: inches beside them, ``below``: under the axis.
    """

    def __init__(self, alt, heights, names, scene, legend=(), left=0.0, right=RIGHT, below=0.0):
        self.since, self.length = scene.since, scene.seconds
        self.left = max(left, max(inches_of(name, TEXT) for name in names) + 3 * GAP)
        self.width = WIDTH - self.left - right
        above = legend_height(legend)
        self.height = TOP + above + sum(heights) + AXIS + below
        self.figure = plt.figure(figsize=(WIDTH, self.height), FigureClass=Picture, layout="none", alt=alt)
        if legend:
            draw_legend(self.figure, legend, self.left, TOP)
        self.strips, top = [], TOP + above
        for height in heights:
            self.strips.append(self._strip(top, height))
            top += height
        last = self.strips[-1]
        last.spines["bottom"].set_visible(True)
        last.tick_params(axis="x", length=3, labelbottom=True)
        measure(last.xaxis, self.length, SECONDS, f"virtual time{scene.since_words}")

    def _strip(self, top, height):
        below = self.height - top - height
        place = self.left / WIDTH, below / self.height, self.width / WIDTH, height / self.height
        axes = self.figure.add_axes(place)
        axes.set_xlim(0, self.length)
        axes.set_ylim(height, 0)
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
        axes.tick_params(axis="x", length=0, labelbottom=False)
        return axes

    def beneath(self, height):
        """Axes under the axis of time, in inches from the picture's left and from their own top."""
        axes = self.figure.add_axes((0, 0.04 / self.height, 1, height / self.height))
        axes.set_xlim(0, WIDTH)
        axes.set_ylim(height, 0)
        axes.axis("off")
        return axes

    def as_inches(self, seconds):
        return seconds * self.width / self.length

    def as_seconds(self, inches):
        return inches * self.length / self.width

    def row_name(self, axes, middle, name, **style):
        place = {"ha": "right", "va": "center_baseline", "fontsize": TEXT} | style
        axes.text(-self.as_seconds(GAP), middle, name, **place)

    def bars(self, axes, bars, top, height, style, beside=None):
        """A bar for each, from ``top`` down, with its name if there is room: in it, or else beside it, where it has
        ``beside`` inches around it."""
        boxes = [(block.start - self.since, top, block.length, height) for block in bars]
        edges = [0.8 if self.as_inches(width) > EDGED or style is WAITING else 0 for _, _, width, _ in boxes]
        blocks(axes, boxes, linewidth=edges, clip_on=False, **style)
        following = [box[0] for box in boxes[1:]] + [self.length]
        for block, box, free in zip(bars, boxes, following):
            wide, right = inches_of(block.name), box[0] + box[2]
            if wide + MARGIN <= self.as_inches(box[2]):
                inside(axes, box, block.name, style["facecolor"])
            elif beside and self.as_inches(box[2]) > EDGED and wide + beside <= self.as_inches(free - right):
                inside(axes, (right, top, self.as_seconds(wide + beside), height), block.name, PAPER)

    def bracket(self, axes, start, end, bottom, words, color=INK):
        """Words over a span, as near to its middle as they can stand."""
        start, end, top = start - self.since, end - self.since, bottom - TICK
        axes.plot([start, start, end, end], [bottom, top, top, bottom], color=color, linewidth=1.0, clip_on=False)
        half = self.as_seconds(inches_of(words, SMALL, "bold") / 2)
        middle = min(max((start + end) / 2, half), self.length - half)
        style = {"fontsize": SMALL, "fontweight": "bold", "color": color}
        axes.text(middle, top - 0.03, words, ha="center", va="bottom", **style)
