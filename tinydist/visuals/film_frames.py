"""The frames of a film: which moments they show, and where they stand without touching one another."""

from itertools import groupby, pairwise
from operator import attrgetter
from typing import NamedTuple

from .blocks import ends
from .holdings import HEAD, draw_cells, draw_heads
from .palette import GREY
from .scene import name_of
from .strips import inches_of
from .style import HEADING

NARROWEST, WIDEST, HIGH, APART = 0.1, 0.2, 0.36, 0.12  # inches: of a cell; between two frames


class Frame(NamedTuple):
    middle: float  # of its block, in seconds
    name: str
    grid: list


class Frames:
    """``moments``: names of marks or blocks, or None for all blocks, or as many as there is room for.

    A block's frame shows the moment at which most is held. Where there are too many, those go that show nothing new.
    """

    def __init__(self, states, cells, purpose, moments, width):
        self.states, self.cells, self.width = states, cells, width
        times = list(self._blocks()) if moments is None else [self._asked(moment) for moment in moments]
        self.title = max((inches_of(name, HEADING, "bold") for _, _, name in times), default=0.0)
        room = max(1, int((width + APART) / (max(self.title, NARROWEST * len(cells.names)) + APART)))
        if moments is not None and len(times) > room:
            raise ValueError(f"film: {room} frames fit beside one another, got {len(times)} moments")
        self.frames = [
            Frame(middle - states.scene.since, name, cells.at(moment, purpose))
            for moment, middle, name in thinned(times, 2 * room)
        ]
        self.frames.sort(key=attrgetter("middle"))
        if len(self.frames) > room:
            changed = [after for before, after in pairwise(self.frames) if after.grid != before.grid]
            self.frames = thinned([self.frames[0], *changed], room)
        share = (width + APART) / max(1, len(self.frames)) - APART
        self.cell = min(WIDEST, max(NARROWEST, share / len(cells.names)))
        self.wide = self.cell * len(cells.names)

    def _blocks(self):
        """(moment, middle, name) of each block, of which pieces that follow one another are one."""
        named = [block for block in self.states.scene.rows[0].compute if block.name]
        for name, pieces in groupby(named, attrgetter("name")):
            first, last = ends(list(pieces))
            yield self.states.fullest(first.start, last.end)[0], (first.start + last.end) / 2, name

    def _asked(self, moment):
        block, (asked, time) = self.states.block(moment), self.states.when(moment)
        return asked, (block.start + block.end) / 2 if block else time, name_of(moment)

    def draw(self, sheet, axes, titles, top, stem):
        """With their ``titles`` and their cells' ``top`` at these heights, and a ``stem`` to each block below."""
        scale, bottom = sheet.as_seconds(1.0), top + HIGH * len(self.cells.ranks)
        heights = [bottom + 0.02, bottom + 0.08, bottom + stem - 0.06, bottom + stem]
        for place, frame in zip(self._places(sheet), self.frames):
            left, layer = scale * (place - self.wide / 2), self.states.scene.names.layer_of(frame.name)
            bold = [column for column, name in enumerate(self.cells.names) if name == layer]
            axes.text(scale * place, titles, frame.name, ha="center", va="top", fontsize=HEADING, fontweight="bold")
            draw_heads(axes, self.cells.names, left, top - HEAD, self.cell, scale, bold)
            draw_cells(axes, frame.grid, left, top, self.cell, HIGH, scale)
            axes.plot([scale * place] * 2 + [frame.middle] * 2, heights, color=GREY, linewidth=0.8, clip_on=False)

    def _places(self, sheet):
        """Their middles in inches, as near to their blocks as they can stand beside one another."""
        half = max(self.wide, self.title) / 2
        step, places = 2 * half + APART, []
        for frame in self.frames:
            places.append(max(sheet.as_inches(frame.middle), places[-1] + step if places else half))
        last = self.width - half
        for number in reversed(range(len(places))):
            places[number] = min(places[number], last)
            last = places[number] - step
        return places


def thinned(values, most):
    """Each second, third ... of them."""
    return values[:: max(1, -(-len(values) // most))]
