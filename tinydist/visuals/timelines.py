"""What one rank did in several runs: a row for each, on one axis, so that they can be compared."""

from ..launch import Run
from ..rules import amount, named, stated, takes
from .canvas import canvas, picture
from .timeline import Row, draw_row, label, shares
from .words import check_rank, seconds_text

runs_from = stated(
    "(run, start)", lambda v: isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], Run) and amount(v[1])
)


@takes(runs=named(runs_from))
@picture
def timelines(runs, rank=0):
    """Draw ``runs``, name -> (run, start): from ``start`` on, in seconds of virtual time, where the axis has its 0."""
    rows, seconds = {}, {}
    for name, (run, start) in runs.items():
        check_rank("timelines", rank, run)
        seconds[name] = run.seconds - start
        if not seconds[name] > 0:
            took = seconds_text(run.seconds)
            raise ValueError(f"timelines: {name!r} took {took}, nothing to draw from {seconds_text(start)} on")
        rows[name] = Row(run.trace.of(rank), start, run.seconds, zero=start)
    for name, row in rows.items():
        print(f"{name}, {seconds_text(seconds[name])}: {shares([row], seconds[name])}")
    figure, axes = canvas("", height=0.8 + 0.4 * len(rows))
    longest = max(seconds.values())
    for place, row in enumerate(rows.values()):
        draw_row(axes, row, place, longest)
    label(axes, list(rows), 0.0, longest)
    return figure
