"""Plots of pipeline schedules over time: passes, microbatches, bubbles.

Each rank has a row, each pass a bar with the number of its microbatch, in all bars or in none; where ranks have several
stages, which are whose is drawn before it, and later ones are paler. What is outlined is the bubble. Of an overlap,
forward is above and backward below. Reductions of gradients go on beside passes: along the lower edge of the row. More
passes than can be told apart have no lines between them.
"""

from collections import defaultdict
from functools import cache

from matplotlib.patches import Patch

from ..pipeline_parallel import Analysis
from ..pipeline_parallel.schedule import STEP
from ..rules import named, validate
from .canvas import blocks, canvas, inside, legend_above, picture
from .formatting import counted, number_text, percent, ranks_text, tell
from .palette import BACKWARD, COMMUNICATION, FORWARD, GREY, INK, OPTIMIZER, PAPER, RED, WEIGHTS, tint

KINDS = {  # kind -> what it is called, and its style
    "F": ("forward", FORWARD),
    "B": ("backward", BACKWARD),
    "I": ("backward for inputs", BACKWARD),
    "W": ("backward for weights", WEIGHTS),
    "R": ("forward again", {"facecolor": tint(FORWARD["facecolor"], 0.5)}),
    STEP: ("optimizer's step", OPTIMIZER),
}
REDUCTION = {"facecolor": COMMUNICATION["facecolor"]}
BUBBLE = {"facecolor": tint(RED, 0.93), "edgecolor": RED}
PALEST = 0.3  # the last of a rank's stages: backward is still darker than forward, and that than weights
MOST_PASSES = 1200  # more cannot be told apart
HIGH, LOW = 0.84, 0.12  # a bar, and that of a reduction; between rows is 1


@validate(analysis=Analysis)
@picture
def schedule(analysis):
    """Draw what ``pipeline_parallel.analyze`` returns. Seconds are those of its costs."""
    tell(summary(analysis))
    return draw_all({"": analysis}, row=min(0.4, 3.4 / analysis.schedule.ranks))


@validate(analyses=named(Analysis))
@picture
def schedules(analyses):
    """Draw several, title -> analysis, below one another, in one scale of time."""
    for title, each in analyses.items():
        tell(summary(each, title))
    return draw_all(analyses, row=0.26)


def summary(analysis, title=None):
    made = analysis.schedule
    peak, least = max(analysis.peak), min(analysis.peak)
    held = f"{peak:g}" if peak == least else f"{least:g} to {peak:g}"
    return (
        f"{title or made.name}, {ranks_text(made.ranks)}, {counted(made.microbatches, 'microbatch')}: "
        f"{analysis.makespan:.4g} s, {percent(analysis.bubble)} of it idle; a rank holds at most {held} activations; "
        f"{sum(map(sum, analysis.messages))} messages"
    )


def alt_text(analysis, title=""):
    made = analysis.schedule
    return (
        f"{title or made.name} on {ranks_text(made.ranks)}: each does the passes of "
        f"{counted(made.microbatches, 'microbatch')} in a row of bars, {number_text(analysis.makespan)} s long, "
        f"of which {percent(analysis.bubble)} are a bubble."
    )


def draw_all(analyses, row):
    made = [each.schedule for each in analyses.values()]
    heights = [0.45 + row * each.ranks for each in made]
    options = {"nrows": len(made), "height_ratios": heights, "sharey": "row", "squeeze": False}
    several = max(len(each.stages_of(rank)) for each in made for rank in range(each.ranks))
    if several > 1:
        options |= {"ncols": 2, "width_ratios": [0.25 * several, 6]}
    alt = " ".join(alt_text(each, title) for title, each in analyses.items())
    figure, grid = canvas(alt, 0.6 + sum(heights), **options)
    longest = max(each.makespan for each in analyses.values())
    for axes, (title, each) in zip(grid, analyses.items()):
        draw_schedule(axes[-1], each, longest)
        bubble = f"{number_text(each.makespan)} s, {percent(each.bubble)} bubble"
        axes[-1].set_title(f"{title or each.schedule.name}: {bubble}")
        if several > 1:
            draw_placement(axes[0], each.schedule, several)
        label_ranks(axes[0], each.schedule.ranks)
    for axes in grid[:-1, -1]:
        axes.tick_params(labelbottom=False)
    grid[-1, -1].set_xlabel("seconds")
    legend(figure, *analyses.values())
    return figure


def draw_schedule(axes, analysis, longest):
    made, boxes, numbers, faces, bubble = analysis.schedule, [], [], [], []
    for rank in range(made.ranks):
        stages = made.stages_of(rank)
        bubble += [(start, rank - HIGH / 2, end - start, HIGH) for start, end in gaps(analysis, rank)]
        for each, start, end in zip(made.programs[rank], analysis.start[rank], analysis.end[rank]):
            parts = [part for part in each.parts if part.kind in KINDS]
            for place, part in enumerate(parts):
                height = HIGH / len(parts)
                boxes.append((start, rank - HIGH / 2 + place * height, end - start, height))
                faces.append(color_of(part.kind, stages.index(part.stage) / max(1, len(stages) - 1)))
                numbers.append(part.microbatch if part.kind != STEP else None)
    lines = 0.5 if len(boxes) <= MOST_PASSES else 0
    for box, number, face in zip(boxes, numbers, faces) if lines else ():
        if number is not None:
            inside(axes, box, number, face, together=axes)
    blocks(axes, boxes, facecolors=faces, edgecolors=PAPER, linewidths=lines)
    blocks(axes, bubble, **BUBBLE, linewidths=lines, clip_on=False)
    under_way = [
        (start, made.rank_of[each.stage] + HIGH / 2 - LOW, end - start, LOW)
        for each, (start, end) in analysis.reductions.items()
        if end > start
    ]
    blocks(axes, under_way, **REDUCTION, linewidths=0)
    axes.set_xlim(0, longest)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


@cache
def color_of(kind, late):
    """``late``: 0 of a rank's first stage, 1 of its last."""
    return tint(KINDS[kind][1]["facecolor"], PALEST * late)


def gaps(analysis, rank):
    """(from, to) of a rank's idle time, within the makespan."""
    done = [(a, b) for a, b in zip(analysis.start[rank], analysis.end[rank]) if b > a]
    ends, starts = [0.0, *(b for _, b in done)], [*(a for a, _ in done), analysis.makespan]
    return [(a, b) for a, b in zip(ends, starts) if b - a > 1e-9 * analysis.makespan]


def draw_placement(axes, made, columns):
    """Which stages a rank has, and the way of a microbatch through them: a loop or a V."""
    place = {stage: (made.stages_of(rank).index(stage), rank) for stage, rank in made.rank_of.items()}
    way = [place[stage] for stage in sorted(place)]
    axes.plot(*zip(*way), color=GREY, linewidth=1.5, zorder=1)
    boxes = {stage: (column - 0.4, rank - 0.4, 0.8, 0.8) for stage, (column, rank) in place.items()}
    faces = {stage: color_of("F", column / max(1, columns - 1)) for stage, (column, _) in place.items()}
    blocks(axes, boxes.values(), facecolors=list(faces.values()), edgecolors=INK, linewidths=0.5)
    for stage, box in boxes.items():
        inside(axes, box, stage, faces[stage], together=axes)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_title("stages", fontweight="normal", fontsize=9)
    axes.spines[:].set_visible(False)
    axes.set_xticks([])


def label_ranks(axes, ranks):
    shown = range(0, ranks, -(-ranks // 16))
    axes.set_ylim(ranks - 0.5, -0.5)
    axes.set_yticks(shown, [f"rank {rank}" for rank in shown])
    axes.tick_params(axis="y", length=0)


def legend(figure, *analyses):
    there = {part.kind for analysis in analyses for _, _, part in analysis.schedule.all_parts()}
    names = defaultdict(list)  # by color: backward is split in some schedules
    for kind in sorted(there & KINDS.keys(), key=list(KINDS).index):
        name, style = KINDS[kind]
        names[style["facecolor"]].append(name)
    handles = [Patch(label=" or ".join(each), facecolor=color) for color, each in names.items()]
    if any(start < end for analysis in analyses for start, end in analysis.reductions.values()):
        handles.append(Patch(label="reduction of gradients", **REDUCTION))
    if any(each.schedule.stages > each.schedule.ranks for each in analyses):
        handles.append(Patch(label="paler: later stage", facecolor=color_of("F", 1)))
    legend_above(figure, [*handles, Patch(label="bubble", **BUBBLE)])
