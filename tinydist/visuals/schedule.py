"""A pipeline schedule in time: who does which pass of which microbatch, and who is idle.

Each rank has a row, each pass a bar with the number of its microbatch, beside which it may be hatched; later stages of
a rank are paler. White is the bubble. Of an overlap, forward is above and backward below. A schedule of more passes
than can be told apart is summarized: its beginning and its end, where each point has the color of what most of its time
goes into.
"""

from collections import defaultdict

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch, Rectangle

from ..pipeline_parallel import Analysis
from ..rules import named, takes
from .canvas import canvas, legend_beside, picture
from .palette import BLUE, GREEN, ORANGE
from .words import percent

KINDS = {  # kind -> what it is called, and its look
    "F": ("forward", {"facecolor": BLUE, "edgecolor": "white"}),
    "B": ("backward", {"facecolor": ORANGE, "edgecolor": "white"}),
    "I": ("backward, input", {"facecolor": ORANGE, "edgecolor": "white", "hatch": "////"}),
    "W": ("backward, weights", {"facecolor": GREEN, "edgecolor": "white", "hatch": "\\\\\\\\"}),
}
MOST_PASSES = 1200  # more cannot be told apart
COLUMNS = 300  # of a summary
WIDE = 0.018  # of the picture: room for a digit


@takes(analysis=Analysis)
@picture
def schedule(analysis):
    """Draw what ``pipeline_parallel.analyze`` returns. Seconds are those of its costs."""
    print(summary(analysis))
    ranks, passes = analysis.schedule.ranks, sum(map(len, analysis.schedule.programs))
    height = 0.8 + ranks * min(0.4, max(0.03, 3 / ranks))
    if passes > MOST_PASSES:
        return draw_summary(analysis, height)
    figure, axes = canvas("", height=height)
    for rank in range(ranks):
        draw_row(axes, analysis, rank, analysis.makespan)
    label(axes, analysis, 0.0, analysis.makespan)
    legend(axes, analysis)
    return figure


@takes(analyses=named(Analysis))
@picture
def schedules(analyses):
    """Draw several, title -> analysis, below one another, in one scale of time."""
    for title, each in analyses.items():
        print(summary(each, title))
        passes = sum(map(len, each.schedule.programs))
        if passes > MOST_PASSES:
            raise ValueError(f"schedules: {MOST_PASSES} passes can be told apart, and {title} has {passes}")
    longest = max(each.makespan for each in analyses.values())
    heights = [0.3 + 0.2 * each.schedule.ranks for each in analyses.values()]
    options = {"nrows": len(analyses), "sharex": True, "squeeze": False, "height_ratios": heights}
    figure, grid = canvas("", height=0.5 + sum(heights), **options)
    for axes, (title, each) in zip(grid.flat, analyses.items()):
        for rank in range(each.schedule.ranks):
            draw_row(axes, each, rank, longest)
        label(axes, each, 0.0, longest)
        axes.set_title(title, loc="left", fontsize=8)
        axes.label_outer()
    legend(grid.flat[len(analyses) // 2], *analyses.values())
    return figure


def summary(analysis, title=None):
    made = analysis.schedule
    peak, least = max(analysis.peak), min(analysis.peak)
    held = f"{peak:g}" if peak == least else f"{least:g} to {peak:g}"
    return (
        f"{title or made.name}, {made.ranks} ranks, {made.microbatches} microbatches: {analysis.makespan:.4g} s, "
        f"{percent(analysis.bubble)} of it idle; a rank holds at most {held} activations; "
        f"{sum(map(sum, analysis.messages))} messages"
    )


# One bar a pass.


def draw_row(axes, analysis, rank, whole):
    made = analysis.schedule
    stages, hatched = made.stages_of(rank), defaultdict(list)
    for each, start, end in zip(made.programs[rank], analysis.start[rank], analysis.end[rank]):
        parts = [part for part in each.parts if part.kind in KINDS]
        for place, part in enumerate(parts):
            height = 0.84 / len(parts)
            low = rank - 0.42 + place * height
            strength = 1 - 0.6 * stages.index(part.stage) / len(stages)
            color = 1 - strength * (1 - np.array(to_rgb(KINDS[part.kind][1]["facecolor"])))
            look = {"facecolor": color, "edgecolor": "white", "linewidth": 0.4}
            axes.add_patch(Rectangle((start, low), end - start, height, **look))
            room = WIDE * whole * len(str(part.microbatch))
            numbered = end - start > room
            hatched[part.kind, low, height] += beside(start, end, room if numbered else 0.0)
            if numbered:
                ink = "black" if color[0] > 0.25 else "white"
                where = {"ha": "center", "va": "center", "fontsize": 7, "color": ink}
                axes.text((start + end) / 2, low + height / 2, part.microbatch, **where)
    for (kind, low, height), spans in hatched.items():
        if hatch := KINDS[kind][1].get("hatch"):
            axes.broken_barh(spans, (low, height), facecolor="none", edgecolor="white", linewidth=0, hatch=hatch)


def beside(start, end, room):
    """(from, width) of what is left and right of a number's ``room``, in the middle."""
    side = (end - start - room) / 2
    return [(start, side), (end - side, side)]


# Many passes: shares of time.


def draw_summary(analysis, height):
    """The beginning and the end, each as long as it takes until all ranks begin with backward, and as much again."""
    ahead = max(first_backward(analysis, rank) for rank in range(analysis.schedule.ranks))
    window = min(2 * ahead, analysis.makespan / 2)
    figure, both = canvas("", height=height, ncols=2, sharey=True)
    for axes, start in zip(both, (0.0, analysis.makespan - window)):
        image = colors(analysis, np.linspace(start, start + window, COLUMNS + 1))
        extent = (start, start + window, analysis.schedule.ranks - 0.5, -0.5)
        axes.imshow(image, aspect="auto", interpolation="nearest", extent=extent)
        label(axes, analysis, start, start + window)
    both[1].tick_params(axis="y", length=0, labelleft=False)
    legend(both[1], analysis)
    return figure


def first_backward(analysis, rank):
    parts = [{part.kind for part in each.parts} for each in analysis.schedule.programs[rank]]
    return float(analysis.start[rank][next(step for step, kinds in enumerate(parts) if kinds & {"B", "I"})])


def colors(analysis, edges):
    """[rank, column, RGB]: the kinds' colors, by their shares of the column's time."""
    found = np.ones((analysis.schedule.ranks, len(edges) - 1, 3))
    for rank, program in enumerate(analysis.schedule.programs):
        kinds = np.array([each.parts[-1].kind for each in program])
        for kind, (_, look) in KINDS.items():
            chosen = kinds == kind
            share = covered(analysis.start[rank][chosen], analysis.end[rank][chosen], edges)
            found[rank] -= share[:, None] * (1 - np.array(to_rgb(look["facecolor"])))
    return found.clip(0, 1)


def covered(starts, ends, edges):
    """The part of the time between each two edges in which there is any of these spans, which do not overlap."""
    if not len(starts):
        return np.zeros(len(edges) - 1)
    times = np.stack([starts, ends], axis=1).ravel()
    before = np.concatenate([[0.0], np.cumsum(np.diff(times) * (np.arange(len(times) - 1) % 2 == 0))])
    return np.diff(np.interp(edges, times, before)) / np.diff(edges)


# Around it.


def label(axes, analysis, start, end):
    ranks = analysis.schedule.ranks
    shown = range(0, ranks, -(-ranks // 16))
    axes.set_xlim(start, end)
    axes.set_ylim(ranks - 0.5, -0.5)
    axes.set_yticks(shown, [f"rank {rank}" for rank in shown])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("seconds")


def legend(axes, *analyses):
    there = {part.kind for analysis in analyses for _, _, part in analysis.schedule.all_parts()}
    legend_beside(axes, [Patch(label=name, **look) for kind, (name, look) in KINDS.items() if kind in there])
