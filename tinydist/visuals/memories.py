"""What one rank held over virtual time in several runs: a line for each, so that they can be compared."""

from ..launch import Run
from ..rules import each_of, named, one_of, takes
from .canvas import canvas, picture
from .curves import LOOKS
from .palette import MEMORY
from .words import BYTES, SECONDS, bytes_text, check_rank, unit_for


@takes(runs=named(Run), purposes=each_of(one_of(MEMORY)))
@picture
def memories(runs, rank=0, purposes=None):
    """Draw ``runs``, name -> run. Of ``purposes``, as the ledger names them; None: of all."""
    for run in runs.values():
        check_rank("memories", rank, run)
    lines = {name: held_in(run, rank, purposes) for name, run in runs.items()}
    peaks = {name: max(held) for name, (_, held) in lines.items()}
    if not any(peaks.values()):
        raise ValueError(f"memories: in none of the runs did rank {rank} hold anything, or it was not run")
    print(f"rank {rank} at most:", ", ".join(f"{name} {bytes_text(peak)}" for name, peak in peaks.items()))
    figure, axes = canvas("")
    for (name, (times, held)), (color, _, line) in zip(lines.items(), LOOKS):
        axes.plot(times, held, line, drawstyle="steps-post", color=color, linewidth=1.4, label=name)
    label(axes, max(times[-1] for times, _ in lines.values()), max(peaks.values()), purposes)
    return figure


def held_in(run, rank, purposes):
    """(times, bytes), from the start to the end of the run."""
    times, held = [0.0], [0]
    for time, state in run.memory[rank].over_time():
        times.append(time)
        held.append(sum(state[purpose] for purpose in purposes or state))
    return [*times, run.seconds], [*held, held[-1]]


def label(axes, seconds, most, purposes):
    (size, unit), (tick, name) = unit_for(most, BYTES), unit_for(seconds, SECONDS)
    axes.set_xlim(0, seconds or 1.0)
    axes.set_ylim(0, 1.1 * most)
    axes.yaxis.set_major_formatter(lambda nbytes, _: f"{nbytes / size:g}")
    axes.xaxis.set_major_formatter(lambda time, _: f"{time / tick:g}")
    axes.set_ylabel(f"{', '.join(purposes or ['held'])} ({unit})")
    axes.set_xlabel(f"virtual time ({name})")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
