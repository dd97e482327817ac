"""What one rank did in several runs: a row for each, on one axis, so that they can be compared."""

from ..launch import Run
from ..rules import named, stated, takes
from .canvas import picture
from .rows import Rows, handles
from .scene import Scene, a_moment
from .strips import Axis, Sheet, legend_height
from .timeline import shares
from .words import check_rank, percent, seconds_text

NOTHING = 1e-3  # of the longest: cannot be seen

a_run = stated(
    "a Run, or (run, since)",
    lambda v: isinstance(v, Run) or (isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], Run) and a_moment(v[1])),
)


@takes(runs=named(a_run), until=a_moment)
@picture
def timelines(runs, rank=0, until=None):
    """Draw ``runs``, name -> run, or (run, since), each from its own beginning; what the others take less is marked.

    ``since`` and ``until`` are moments, as for ``timeline``.
    """
    scenes = {}
    for name, given in runs.items():
        run, since = given if isinstance(given, tuple) else (given, None)
        check_rank("timelines", rank, run)
        scenes[name] = Scene(f"timelines, {name}", run.trace, [rank], since, until)
    longest = max(scene.seconds for scene in scenes.values())
    for name, scene in scenes.items():
        print(f"{name}, {seconds_text(scene.seconds)}: {shares(scene.rows, scene.seconds)}")
    rows = Rows([scene.rows[0].since(scene.since) for scene in scenes.values()], differences(scenes, longest))
    legend = handles(rows.rows)
    top = legend_height(legend)
    sheet = Sheet(alt(scenes, rank), [top + rows.height], scenes, Axis(0.0, longest, words_of(scenes)))
    rows.draw(sheet, sheet.strips[0], top, scenes)
    sheet.legend(legend)
    return sheet.figure


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


def words_of(scenes):
    """What the axis says of its 0, if it is the same for all."""
    said = {scene.since_words for scene in scenes.values()}
    return said.pop() if len(said) == 1 else ""
