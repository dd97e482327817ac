"""Memory of a rank over virtual time by purpose, with a breakdown of the peak; for one run or several."""

from matplotlib.patches import Patch, Rectangle

from ..launching.launch import Run
from ..rules import amount, each_of, many, named, one_of, validate, whole
from ..tracing.trace import Trace
from .canvas import picture
from .figure import SMALL, WIDTH
from .formatting import BYTES, bytes_text, check_rank, digits, seconds_text, tell, unit_for
from .memory_states import MemoryStates, bytes_axis, draw_levels, levels_of, mark_peak, room_for, told, total
from .palette import GREYS, INK, MEMORY, RED
from .scene import Scene, a_moment, a_run, scenes_of
from .time_axis import GAP, Sheet, inches_of
from .timeline import axis_of, first_rows, marked, some_marks
from .timeline_rows import WORDS, Rows, handles

LEFT, AREA = 0.85, 1.9  # inches: room for the axis; the bytes
TITLE, LOW, BESIDE, ABOVE = 0.24, 0.8, 0.75, 0.05  # of several runs: a title; the bytes; the axis; a timeline's edge
LINE, MARK, COLUMN = 0.19, 0.16, 0.2  # of the table: a line; a colored mark; between two columns


@validate(run=Run | Trace, lines=named(amount), since=a_moment, until=a_moment)
@picture
def memory(run, rank=0, lines=None, since=None, until=None):
    """Draw the memory of one rank, by purpose, under the names of what it computes.

    ``since`` and ``until`` are moments, as for ``timeline``; None: all of the run if its peak is before the first
    forward pass. ``lines``: name -> bytes, as high as which something would be: a dotted line for each.
    """
    scene, held = scene_and_states("memory", run, rank, [rank], since, until)
    row = scene.rows[0]
    rows = Rows([row], lanes=False, styles=GREYS) if any(block.name for block in row.compute) else None
    return draw(scene, held, rows, [""], lines or {})


@validate(run=Run | Trace, ranks=many, lines=named(amount), since=a_moment, until=a_moment, mark=some_marks)
@picture
def timeline_over_memory(run, rank=0, ranks=None, lines=None, since=None, until=None, mark=None):
    """Draw the memory of one rank under what ``ranks`` did (None: up to four), on one axis of time.

    The other arguments are those of ``memory`` and of ``timeline``.
    """
    some = range(4) if len(run.memory) <= 4 else [rank]
    scene, held = scene_and_states(
        "timeline_over_memory", run, rank, list(some if ranks is None else ranks), since, until
    )
    rows = Rows(scene.rows, marked(scene, mark), styles=GREYS)
    return draw(scene, held, rows, [f"rank {each}" for each in scene.ranks], lines or {})


def scene_and_states(operation, run, rank, ranks, since, until):
    check_rank(operation, rank, run)
    trace = run if isinstance(run, Trace) else run.trace
    if not trace.memory[rank].changes:
        raise ValueError(f"{operation}: rank {rank} held nothing, or was not run")
    scene = Scene(operation, trace, ranks, since, until)
    if since is None and peak_time(trace.memory[rank]) < scene.since:
        scene = Scene(operation, trace, ranks, 0.0, until)
    return scene, MemoryStates(scene, rank)


def peak_time(held):
    return next(time for time, state in held.over_time() if total(state) == held.peak)


def draw(scene, held, rows, names, lines):
    tell(summary(scene, held))
    levels, heights = levels_of(held) | lines, [rows.height, AREA] if rows else [AREA]
    legend = handles(rows.rows, any(rows.lanes), GREYS) if rows else []
    sides = {"left": LEFT, "right": room_for(levels), "below": 3 * LINE}
    sheet = Sheet(alt(scene, held), heights, names, scene, legend, **sides)
    if rows:
        rows.draw(sheet, sheet.strips[0], names)
    area = sheet.strips[-1]
    bytes_axis(area, max(levels.values()), f"rank {held.rank} holds")
    draw_stack(area, held)
    mark_peak(area, held.peak_time - scene.since, total(held.peak))
    draw_levels(area, AREA, levels)
    draw_table(sheet, held)
    return sheet.figure


def summary(scene, held):
    parts = sorted(((purpose, nbytes) for purpose, nbytes in held.peak.items() if nbytes), key=lambda part: -part[1])
    made_of = ", ".join(f"{purpose} {bytes_text(nbytes)}" for purpose, nbytes in parts)
    when = f"at {seconds_text(held.peak_time - scene.since)}{in_block(held)}"
    rest = f"{bytes_text(total(held.rest))} at rest, and " if total(held.rest) else ""
    return f"rank {held.rank} holds {rest}at most {bytes_text(total(held.peak))}, {when}: {made_of}"


def alt(scene, held):
    seconds, levels = seconds_text(scene.seconds), told(levels_of(held))
    return f"The bytes that rank {held.rank} held in {seconds} of virtual time, by purpose: {levels}{in_block(held)}."


def in_block(held):
    """The name of what the rank computes at its peak."""
    blocks = held.scene.row(held.rank).compute
    name = next((block.name for block in blocks if block.start <= held.peak_time < block.end), "")
    return f", in {name}" if name else ""


def draw_stack(axes, held):
    times, states = held.curve()
    below = [0] * len(times)
    for purpose in held.kinds:
        above = [bottom + state[purpose] for bottom, state in zip(below, states)]
        if above != below:
            axes.fill_between(times, below, above, step="post", linewidth=0, facecolor=MEMORY[purpose]["facecolor"])
        below = above


def draw_table(sheet, held):
    """Below the axis: what is held at rest and at the peak, by purpose. It is the legend, too."""
    axes = sheet.beneath(3 * LINE)
    size, unit = unit_for(total(held.peak), BYTES)
    shown = [purpose for purpose in held.kinds if any(state[purpose] for _, _, state in held.states)]
    titles, left, places = [*shown, "in all"], sheet.left, {}
    taken = sum(MARK + inches_of(title) for title in titles)
    apart = min(COLUMN, (WIDTH - GAP - left - taken) / (len(titles) - 1))
    for purpose in titles:
        places[purpose] = left + MARK
        axes.text(left + MARK, 0.5 * LINE, purpose, va="center", fontsize=SMALL)
        if purpose in MEMORY:
            color = MEMORY[purpose]["facecolor"]
            axes.add_patch(Rectangle((left, 0.5 * LINE - 0.05), 0.1, 0.1, facecolor=color))
        left += MARK + inches_of(purpose) + apart
    for line, name in enumerate(levels_of(held), 1):
        state = held.peak if name == "peak" else held.rest
        style = {"va": "center", "fontsize": SMALL, "color": RED if name == "peak" else INK}
        axes.text(sheet.left - GAP, (line + 0.5) * LINE, f"{name} ({unit})", ha="right", **style)
        for purpose, place in places.items():
            nbytes = total(state) if purpose == "in all" else state[purpose]
            number = digits(nbytes / size) if nbytes >= size / 200 else "0.00"
            axes.text(place, (line + 0.5) * LINE, number if nbytes else "–", **style)


# Several runs, one below the other, on one axis and in one scale of bytes.


@validate(runs=named(a_run), rank=whole, purposes=each_of(one_of(MEMORY)))
@picture
def memories(runs, rank=0, purposes=None):
    """Draw ``runs``, name -> run, or (run, since), each from its own beginning, above the names of what it computes.

    purposes:  what is drawn, as the ledger names it. None: all.
    """
    scenes = scenes_of("memories", runs, rank)
    held = {name: MemoryStates(scene, rank, purposes or list(MEMORY)) for name, scene in scenes.items()}
    if not any(total(states.peak) for states in held.values()):
        raise ValueError(f"memories: in none of the runs did rank {rank} hold anything, or it was not run")
    for name, states in held.items():
        tell(f"rank {rank}, {name}: {told(levels_of(states))}")
    rows = [Rows([row], lanes=False, styles=GREYS) for row in first_rows(scenes)]
    legend = [Patch(label=kind, facecolor=MEMORY[kind]["facecolor"]) for kind in kinds_in(held)]
    if any(block.kind == "recompute" for row in rows for block in row.rows[0].compute):
        legend.append(Patch(label=WORDS["recompute"], **GREYS["recompute"]))
    heights = [height for row in rows for height in (TITLE, LOW, ABOVE + row.height)]
    said = "; ".join(f"{name}, {told(levels_of(states))}" for name, states in held.items())
    alt = f"The bytes that rank {rank} held in {len(held)} runs, in virtual time: {said}."
    sheet = Sheet(alt, heights, [""], axis_of(scenes), legend, BESIDE)
    most = max(total(states.peak) for states in held.values())
    for number, ((name, states), row) in enumerate(zip(held.items(), rows)):
        title, area, below = sheet.strips[3 * number : 3 * number + 3]
        title.text(0, TITLE - ABOVE, name, fontweight="bold", fontsize=SMALL)
        beside = sheet.as_seconds(inches_of(name, SMALL, "bold") + 0.1)
        title.text(beside, TITLE - ABOVE, told(levels_of(states)), fontsize=SMALL)
        bytes_axis(area, most, "held")
        draw_stack(area, states)
        mark_peak(area, states.peak_time - states.scene.since, total(states.peak))
        row.draw(sheet, below, [""], ABOVE)
    return sheet.figure


def kinds_in(held):
    """Purposes with bytes."""
    states = [state for each in held.values() for _, _, state in each.states]
    return [kind for kind in MEMORY if any(state.get(kind) for state in states)]
