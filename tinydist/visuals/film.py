"""Who holds what, moment after moment, above what one rank does and the bytes that it holds, on one axis of time.

    F1  F2  ... B1     ranks x layers during these blocks, in the colors of the owners (holdings.py)
     |   |       |
    ▇▇  ▇▇      ▇▇     what a rank computes, and sends
    ▁▃▁▃▁▃ ... ▁▃▁     its bytes: its own parts in its color, all else grey

A frame shows the moment of its block at which the rank holds most.
"""

from ..launch import Run
from ..rules import each_of, one_of, takes
from ..simulator.memory import PURPOSES
from .canvas import picture
from .film_frames import HIGH, Frames
from .holdings import HEAD, Cells, handles, heads_height, labels_of, that_ran
from .levels import bytes_axis, draw_levels, levels_of, mark_peak, room_for, told
from .palette import GREY, RANKS, SOFT
from .rows import GREYS, Rows
from .scene import MOST_RANKS, Scene, a_moment, is_name
from .states import States, total
from .strips import Sheet, draw_legend, legend_height
from .style import SMALL, WIDTH
from .words import check_rank, seconds_text

TITLE, STEM, AREA, LEFT = 0.24, 0.28, 1.35, 0.85  # inches


@takes(run=Run, purpose=one_of(PURPOSES), moments=each_of(is_name), labels=each_of(str), since=a_moment, until=a_moment)
@picture
def film(run, purpose="parameters", moments=None, rank=0, labels=None, since=None, until=None):
    """Draw who holds what of each layer, for ``purpose``, at ``moments``: names of marks, or of blocks of ``rank``.

    moments:  None: every block, or as many of them as there is room for.
    labels:   of the ledger, for the columns. None: the layers.
    ``since`` and ``until`` are moments, as for ``timeline``.
    """
    check_rank("film", rank, run)
    scene = Scene("film", run.trace, [rank], since, until)
    cells = Cells(run.trace, that_ran(run.trace)[:MOST_RANKS], labels_of(scene, purpose, labels))
    states = States(scene, rank, ("own", "other"), owned(cells, rank, purpose))
    if not total(states.peak):
        raise ValueError(f"film: rank {rank} held no {purpose}, or was not run")
    levels = levels_of(states)
    print(summary(scene, purpose, levels))
    return draw(scene, cells, states, levels, purpose, moments)


def draw(scene, cells, states, levels, purpose, moments):
    names, right = [f"rank {rank}" for rank in cells.ranks], room_for(levels)
    frames = Frames(states, cells, purpose, moments, WIDTH - LEFT - right)
    rows, legend = Rows(scene.rows, looks=GREYS), handles([frame.grid for frame in frames.frames])
    titles = legend_height(legend)
    top = titles + TITLE + heads_height(cells.names, frames.cell)
    heights = [top + HIGH * len(names) + STEM, rows.height, AREA]
    sheet = Sheet(alt(scene, purpose, levels), heights, names, scene, LEFT, right)
    film, lanes, area = sheet.strips
    frames.draw(sheet, film, titles, top, STEM)
    sheet.row_name(film, top - HEAD, cells.word, va="bottom", fontsize=SMALL, color=SOFT)
    for number, name in enumerate(names):
        sheet.row_name(film, top + (number + 0.5) * HIGH, name)
    rows.draw(sheet, lanes, 0.0, [f"rank {states.rank}"])
    draw_bytes(area, states, levels, purpose)
    draw_legend(sheet.strips[0], legend)
    return sheet.figure


def owned(cells, rank, purpose):
    """Kinds of a change: of what this rank owns, or of what is there for a while, or a copy."""

    def kind(change):
        if change.purpose != purpose:
            return None
        return "own" if change.shard == rank or cells.is_alone(rank, change.label) else "other"

    return kind


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
    axes.fill_between(times, 0, own, step="post", linewidth=0, facecolor=RANKS[states.rank % len(RANKS)])
    axes.fill_between(times, own, both, step="post", linewidth=0, facecolor=GREY)
    mark_peak(axes, states.peak_time - states.scene.since, levels["peak"])
    draw_levels(axes, AREA, levels)
