"""Shard placement over time (a filmstrip), above one rank's timeline and memory, on a common time axis.

    F1  F2  ... B1     ranks x layers during these blocks, in the colors of the owners (ownership_grid.py)
     |   |       |
    ▇▇  ▇▇      ▇▇     what a rank computes, and sends
    ▁▃▁▃▁▃ ... ▁▃▁     its bytes: its own parts in its color, all else grey

A frame shows the moment of its block at which the rank holds most.
"""

from itertools import groupby, pairwise
from operator import attrgetter
from typing import NamedTuple

from matplotlib.patches import Patch

from ..annotate import PURPOSES
from ..launching.launch import Run
from ..rules import each_of, one_of, validate
from .canvas import apart, picture
from .figure import HEADING, SMALL, WIDTH
from .formatting import check_rank, seconds_text, tell
from .memory_states import MemoryStates, bytes_axis, draw_levels, levels_of, mark_peak, room_for, told, total
from .ownership_grid import (
    HEAD,
    OWN_COPY,
    Cells,
    color_of,
    draw_cells,
    draw_heads,
    handles,
    heads_height,
    labels_of,
    that_ran,
)
from .palette import GREY, GREYS, SOFT
from .scene import MOST_RANKS, Scene, a_moment, ends, is_name, name_of
from .time_axis import CLOSE, Sheet, inches_of
from .timeline_rows import Rows

TITLE, STEM, AREA, LEFT = 0.24, 0.28, 1.35, 0.85  # inches
NARROWEST, WIDEST, HIGH, APART = 0.1, 0.2, 0.36, 0.12  # inches: of a cell; between two frames


@validate(
    run=Run, purpose=one_of(PURPOSES), moments=each_of(is_name), labels=each_of(str), since=a_moment, until=a_moment
)
@picture
def ownership_timeline(run, purpose="parameters", moments=None, rank=0, labels=None, since=None, until=None):
    """Draw each layer's shard placement, for ``purpose``, at ``moments``: names of marks, or of blocks of ``rank``.

    moments:  None: every block, or as many of them as there is room for.
    labels:   of the ledger, for the columns. None: the layers.
    ``since`` and ``until`` are moments, as for ``timeline``.
    """
    check_rank("ownership_timeline", rank, run)
    scene = Scene("ownership_timeline", run.trace, [rank], since, until)
    cells = Cells(run.trace, that_ran(run.trace)[:MOST_RANKS], labels_of(scene, purpose, labels))
    states = MemoryStates(scene, rank, ("own", "other"), owned(cells, rank, purpose))
    if not total(states.peak):
        raise ValueError(f"ownership_timeline: rank {rank} held no {purpose}, or was not run")
    levels = levels_of(states)
    tell(summary(scene, purpose, levels))
    return draw(scene, cells, states, levels, purpose, moments)


def draw(scene, cells, states, levels, purpose, moments):
    names, right = [f"rank {rank}" for rank in cells.ranks], room_for(levels)
    frames = Frames(states, cells, purpose, moments, WIDTH - LEFT - right)
    rows = Rows(scene.rows, styles=GREYS, around=CLOSE)
    top = TITLE + heads_height(cells.names, frames.cell)
    heights = [top + HIGH * len(names) + STEM, rows.height, AREA]
    legend = legend_of(frames.frames, states)
    sheet = Sheet(alt(scene, purpose, levels), heights, names, scene, legend, LEFT, right)
    frames_strip, lanes, area = sheet.strips
    frames.draw(sheet, frames_strip, top)
    sheet.row_name(frames_strip, top - HEAD, cells.word, va="bottom", fontsize=SMALL, color=SOFT)
    for number, name in enumerate(names):
        sheet.row_name(frames_strip, top + (number + 0.5) * HIGH, name)
    rows.draw(sheet, lanes, [f"rank {states.rank}"])
    draw_bytes(area, states, levels, purpose)
    return sheet.figure


def owned(cells, rank, purpose):
    """Kinds of a change: of what this rank owns, or of what is there for a while, or a copy."""

    def kind(change):
        if change.purpose != purpose:
            return None
        return "own" if change.shard == rank or cells.is_alone(rank, change.label) else "other"

    return kind


def legend_of(frames, states):
    """Of the owners; and of what is grey in the bytes, where nothing is grey in the frames."""
    legend = handles([frame.grid for frame in frames])
    is_told = any(each.get_label() == OWN_COPY for each in legend)
    if is_told or not any(state["other"] for state in states.curve()[1]):
        return legend
    return [*legend, Patch(facecolor=GREY, label=f"belongs to others (bytes of rank {states.rank})")]


def summary(scene, purpose, levels):
    return f"rank {scene.ranks[0]}, {purpose}: {told(levels)}, in {seconds_text(scene.seconds)}"


def alt(scene, purpose, levels):
    blocks = dict.fromkeys(block.name for block in scene.rows[0].compute if block.name)
    computed = f"Who holds which {purpose} while rank {scene.ranks[0]} computes {', '.join(blocks)}"
    return f"{computed}; {summary(scene, purpose, levels)}."


def draw_bytes(axes, states, levels, purpose):
    bytes_axis(axes, max(levels.values()), purpose)
    times, curve = states.curve()
    own, both = [state["own"] for state in curve], [total(state) for state in curve]
    axes.fill_between(times, 0, own, step="post", linewidth=0, facecolor=color_of(states.rank))
    axes.fill_between(times, own, both, step="post", linewidth=0, facecolor=GREY)
    mark_peak(axes, states.peak_time - states.scene.since, levels["peak"])
    draw_levels(axes, AREA, levels)


# The frames: which moments they show, and where they stand without touching one another.


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
            raise ValueError(f"ownership_timeline: {room} frames fit side by side, got {len(times)} moments")
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
        """(moment, middle, name) of each block; consecutive pieces are merged."""
        named = [block for block in self.states.scene.rows[0].compute if block.name]
        for name, pieces in groupby(named, attrgetter("name")):
            first, last = ends(list(pieces))
            yield self.states.fullest(first.start, last.end)[0], (first.start + last.end) / 2, name

    def _asked(self, moment):
        block, (asked, time) = self.states.block(moment), self.states.when(moment)
        return asked, (block.start + block.end) / 2 if block else time, name_of(moment)

    def draw(self, sheet, axes, top):
        """With their titles, their cells from ``top`` down, and a stem to each block below."""
        scale, bottom = sheet.as_seconds(1.0), top + HIGH * len(self.cells.ranks)
        heights = [bottom + 0.02, bottom + 0.08, bottom + STEM - 0.06, bottom + STEM]
        for place, frame in zip(self._places(sheet), self.frames):
            left, layer = scale * (place - self.wide / 2), self.states.scene.names.layer_of(frame.name)
            bold = [column for column, name in enumerate(self.cells.names) if name == layer]
            axes.text(scale * place, 0, frame.name, ha="center", va="top", fontsize=HEADING, fontweight="bold")
            draw_heads(axes, self.cells.names, left, top - HEAD, self.cell, scale, bold)
            draw_cells(axes, frame.grid, left, top, self.cell, HIGH, scale)
            axes.plot([scale * place] * 2 + [frame.middle] * 2, heights, color=GREY, linewidth=0.8, clip_on=False)

    def _places(self, sheet):
        """Their centers in inches, as close to their blocks as they fit beside one another."""
        half = max(self.wide, self.title) / 2
        places = [max(sheet.as_inches(frame.middle), half) for frame in self.frames]
        return apart(places, 2 * half + APART, self.width - half)


def thinned(values, most):
    """Each second, third ... of them."""
    return values[:: max(1, -(-len(values) // most))]
