"""What a rank held over virtual time, by purpose, and what its peak was made of."""

from matplotlib.patches import Patch

from ..launch import Run
from ..rules import amount, named, takes
from ..simulator.trace import Trace
from .canvas import canvas, legend_beside, picture
from .palette import MEMORY
from .words import BYTES, SECONDS, bytes_text, check_rank, seconds_text, unit_for

MOMENTS = 400  # more cannot be told apart


@takes(run=Run | Trace, lines=named(amount))
@picture
def memory(run, rank=0, lines=None):
    """Draw the memory of one rank, with the peak marked.

    lines:  name -> bytes, as high as which something would be: a dotted line for each.
    """
    check_rank("memory", rank, run)
    held, seconds = run.memory[rank], run.seconds
    if not held.changes:
        raise ValueError(f"memory: rank {rank} held nothing, or was not run")
    times, states = moments(held, seconds)
    when = peak_time(held)
    print(summary(rank, held, when))
    figure, axes = canvas("")
    draw_stack(axes, times, states, [purpose for purpose in MEMORY if any(state[purpose] for state in states)])
    mark_peak(axes, held, when)
    draw_lines(axes, lines or {})
    label(axes, held, seconds)
    return figure


def moments(held, seconds):
    """Times and states: of each moment the fullest one, wide enough to be seen, and the one that it ends with."""
    times, states, moment, width = [], [], None, seconds / MOMENTS
    for time, state in held.over_time():
        now = time // width if width else 0
        if now != moment:
            moment = now
            times += [max(time, *times[-1:], 0), time]
            states += [state, state]
        if sum(state.values()) > sum(states[-2].values()):
            states[-2] = state
        times[-1], states[-1] = times[-2] + width, state
    return [*times, max(seconds, times[-1])], [*states, states[-1]]


def peak_time(held):
    return next(time for time, state in held.over_time() if sum(state.values()) == held.peak)


def summary(rank, held, when):
    parts = sorted(held.at_peak.items(), key=lambda part: -part[1])
    made_of = ", ".join(f"{purpose} {bytes_text(nbytes)}" for purpose, nbytes in parts)
    return f"rank {rank} holds at most {bytes_text(held.peak)}, at {seconds_text(when)}: {made_of}"


def draw_stack(axes, times, states, purposes):
    below = [0] * len(times)
    for purpose in purposes:
        above = [bottom + state[purpose] for bottom, state in zip(below, states)]
        axes.fill_between(times, below, above, step="post", linewidth=0, **MEMORY[purpose])
        below = above


def mark_peak(axes, held, when):
    axes.axhline(held.peak, color="black", linewidth=0.8, linestyle="--")
    axes.plot([when], [held.peak], "kv", markersize=6, clip_on=False)


def draw_lines(axes, lines):
    place = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
    for name, nbytes in lines.items():
        axes.axhline(nbytes, color="black", linewidth=0.7, linestyle=":")
        axes.annotate(name, (0, nbytes), (3, -2), va="top", fontsize=8, **place)


def label(axes, held, seconds):
    (size, unit), (tick, name) = unit_for(held.peak, BYTES), unit_for(seconds, SECONDS)
    axes.set_xlim(0, seconds or 1.0)
    axes.set_ylim(0, 1.1 * held.peak)
    axes.yaxis.set_major_formatter(lambda nbytes, _: f"{nbytes / size:g}")
    axes.xaxis.set_major_formatter(lambda time, _: f"{time / tick:g}")
    axes.set_ylabel(f"held ({unit})")
    axes.set_xlabel(f"virtual time ({name})")
    parts = [purpose for purpose in reversed(MEMORY) if purpose in held.at_peak]
    handles = [Patch(label=f"{part} {bytes_text(held.at_peak[part])}", **MEMORY[part]) for part in parts]
    legend_beside(axes, handles, title=f"▼ at the peak: {bytes_text(held.peak)}", alignment="left")
