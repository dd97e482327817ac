"""What one rank held over virtual time in several runs: one below the other, on one axis and in one scale of bytes."""

from matplotlib.patches import Patch

from ..rules import each_of, named, one_of, takes
from .canvas import picture
from .levels import bytes_axis, levels_of, mark_peak, told
from .memory import draw_stack
from .palette import MEMORY
from .rows import GREYS, Rows
from .scene import a_run, scenes_of
from .states import States, total
from .strips import Sheet, draw_legend, inches_of, legend_height
from .style import SMALL
from .timeline import axis_of, first_rows

TITLE, AREA, LEFT, ABOVE = 0.24, 0.8, 0.75, 0.05  # inches


@takes(runs=named(a_run), purposes=each_of(one_of(MEMORY)))
@picture
def memories(runs, rank=0, purposes=None):
    """Draw ``runs``, name -> run, or (run, since), each from its own beginning, above the names of what it computes.

    purposes:  what is drawn, as the ledger names it. None: all.
    """
    scenes = scenes_of("memories", runs, rank)
    held = {name: States(scene, rank, purposes or list(MEMORY)) for name, scene in scenes.items()}
    if not any(total(states.peak) for states in held.values()):
        raise ValueError(f"memories: in none of the runs did rank {rank} hold anything, or it was not run")
    for name, states in held.items():
        print(f"rank {rank}, {name}: {told(levels_of(states))}")
    return draw(held, rank, scenes)


def draw(held, rank, scenes):
    rows = [Rows([row], lanes=False, looks=GREYS) for row in first_rows(scenes)]
    legend = [Patch(label=kind, facecolor=MEMORY[kind]["facecolor"]) for kind in kinds_in(held)]
    heights = [height for row in rows for height in (TITLE, AREA, ABOVE + row.height)]
    said = "; ".join(f"{name}, {told(levels_of(states))}" for name, states in held.items())
    alt = f"The bytes that rank {rank} held in {len(held)} runs, in virtual time: {said}."
    sheet = Sheet(alt, [legend_height(legend), *heights], [""], axis_of(scenes), left=LEFT)
    draw_legend(sheet.strips[0], legend)
    most = max(total(states.peak) for states in held.values())
    for number, ((name, states), row) in enumerate(zip(held.items(), rows)):
        title, area, below = sheet.strips[1 + 3 * number : 4 + 3 * number]
        title.text(0, TITLE - ABOVE, name, fontweight="bold", fontsize=SMALL)
        beside = sheet.as_seconds(inches_of(name, SMALL, "bold") + 0.1)
        title.text(beside, TITLE - ABOVE, told(levels_of(states)), fontsize=SMALL)
        bytes_axis(area, most, "held")
        draw_stack(area, states)
        mark_peak(area, states.peak_time - states.scene.since, total(states.peak))
        row.draw(sheet, below, ABOVE, [""])
    return sheet.figure


def kinds_in(held):
    """Purposes of which there is something."""
    states = [state for each in held.values() for _, _, state in each.states]
    return [kind for kind in MEMORY if any(state.get(kind) for state in states)]
