"""What one rank did in several runs: a row for each, on one axis, so that they can be compared."""

from ..rules import named, takes
from .canvas import picture
from .rows import Rows, handles
from .scene import a_moment, a_run, scenes_of
from .strips import Axis, Sheet, draw_legend, legend_height
from .timeline import shares
from .words import percent, seconds_text

NOTHING = 1e-3  # of the longest: cannot be seen


@takes(runs=named(a_run), until=a_moment)
@picture
def timelines(runs, rank=0, until=None):
    """Draw ``runs``, name -> run, or (run, since), each from its own beginning; what the others take less is marked.

    ``since`` and ``until`` are moments, as for ``timeline``.
    """
    scenes = scenes_of("timelines", runs, rank, until)
    axis = axis_of(scenes)
    for name, scene in scenes.items():
        print(f"{name}, {seconds_text(scene.seconds)}: {shares(scene.rows, scene.seconds)}")
    rows = Rows([scene.rows[0].since(scene.since) for scene in scenes.values()], differences(scenes, axis.seconds))
    legend = handles(rows.rows)
    top = legend_height(legend)
    sheet = Sheet(alt(scenes, rank), [top + rows.height], scenes, axis)
    rows.draw(sheet, sheet.strips[0], top, scenes)
    draw_legend(sheet.strips[0], legend)
    return sheet.figure


def axis_of(scenes):
    """From 0 to the end of the longest; it says where its 0 is, if that is the same for all."""
    said = {scene.since_words for scene in scenes.values()}
    return Axis(0.0, max(scene.seconds for scene in scenes.values()), said.pop() if len(said) == 1 else "")


def differences(scenes, longest):
    """Number of a row -> a bracket from its end to that of the longest."""
    found = {}
    for number, scene in enumerate(scenes.values()):
        less = longest - scene.seconds
        if less > NOTHING * longest:
            words = f"{seconds_text(less)} less ({percent(less / longest)})"
            found[number] = [(scene.seconds, longest, words)]
    return found


def alt(scenes, rank):
    took = ", ".join(f"{name} {seconds_text(scene.seconds)}" for name, scene in scenes.items())
    return f"What rank {rank} did in {len(scenes)} runs, in virtual time: {took}."
