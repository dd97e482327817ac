"""Who computed, communicated and waited, and when.

Each rank has a row: its compute stream above, its transfers below, and where several are under way at once, one below
the other. Where the two lie above each other, communication is hidden behind compute; dots are time lost in waiting.
"""

from matplotlib.patches import Patch

from ..launch import Run
from ..rules import amount, many, takes, whole
from .canvas import canvas, legend_beside, picture
from .palette import COMMUNICATION, COMPUTE, WAITING
from .words import SECONDS, percent, ranks_text, seconds_text, unit_for

MOST_RANKS = 16  # more rows cannot be told apart
NARROW, WIDE = 1 / 250, 1 / 60  # of the picture: room for an edge, for a hatch


@takes(run=Run, ranks=many, start=amount, end=amount)
@picture
def timeline(run, ranks=None, start=None, end=None):
    """Draw ``ranks`` (None: all, and at most 16) from ``start`` to ``end``, in seconds of virtual time."""
    trace = run.trace
    start, end = start or 0.0, trace.seconds if end is None else end
    if not start < end:
        raise ValueError(f"timeline: nothing to draw from {seconds_text(start)} to {seconds_text(end)}")
    everyone = range(len(trace.memory))
    ranks = everyone[:MOST_RANKS] if ranks is None else list(ranks)
    if not ranks or not all(whole(rank) and rank in everyone for rank in ranks):
        raise ValueError(f"timeline: ranks must be some of {everyone[0]} to {everyone[-1]}, got {ranks}")
    rows = [Row(trace.of(rank), start, end) for rank in ranks]
    print(summary(rows, len(everyone), start, end))
    figure, axes = canvas("", height=0.8 + len(rows) * min(0.4, max(0.2, 2.4 / len(rows))))
    for place, row in enumerate(rows):
        draw_row(axes, row, place, end - start)
    label(axes, [f"rank {rank}" for rank in ranks], start, end)
    return figure


class Row:
    """What one rank did between ``start`` and ``end``, as (from, to) in the order of time, counted from ``zero``."""

    def __init__(self, events, start, end, zero=0.0):
        self.compute, self.waiting, self.communication = [], [], []
        for event in events:
            span = max(event.start, start), min(event.end, end)
            if span[0] < span[1]:
                self.spans_like(event).append((span[0] - zero, span[1] - zero))

    def spans_like(self, event):
        if event.stream != "compute":
            return self.communication
        return self.waiting if event.name == "wait" else self.compute


# The line of text. Seconds are those of all ranks together.


def summary(rows, ranks, start, end):
    who = ranks_text(ranks) if len(rows) == ranks else f"{len(rows)} of {ranks} ranks"
    when = f"{seconds_text(start)} to {seconds_text(end)}" if start else seconds_text(end)
    return f"{who}, {when}: {shares(rows, len(rows) * (end - start))}"


def shares(rows, whole):
    compute, waiting, busy = (
        sum(covered(getattr(row, kind)) for row in rows) for kind in ("compute", "waiting", "communication")
    )
    either = sum(covered(row.compute + row.communication) for row in rows)
    text = f"compute {percent(compute / whole)}, waiting {percent(waiting / whole)}"
    if busy:
        hidden = percent(max(0.0, compute + busy - either) / busy)
        text += f", communication {percent(busy / whole)} ({hidden} of it behind compute)"
    return text


def covered(spans):
    """Seconds in which there is any of them."""
    total, until = 0.0, float("-inf")
    for a, b in sorted(spans):
        total += max(0.0, b - max(a, until))
        until = max(b, until)
    return total


# The bars.


def draw_row(axes, row, place, whole):
    draw_bars(axes, row.compute, place - 0.42, 0.42, whole, COMPUTE)
    draw_bars(axes, row.waiting, place - 0.42, 0.42, whole, WAITING)
    for number, (lane, among) in enumerate(lanes(row.communication)):
        draw_bars(axes, lane, place + number * 0.42 / among, 0.42 / among, whole, COMMUNICATION)


def lanes(spans):
    """The spans dealt out to as few lists as can be, in each of which they come one after another."""
    found = []
    for span in sorted(spans):
        free = (lane for lane in found if lane[-1][1] <= span[0])
        lane = next(free, None)
        if lane is None:
            found.append([span])
        else:
            lane.append(span)
    return [(lane, len(found)) for lane in found]


def draw_bars(axes, spans, bottom, height, whole, look):
    bars = [(a, b - a) for a, b in merged(spans, NARROW * whole)]
    wide = [bar for bar in bars if bar[1] > WIDE * whole]
    slim = [bar for bar in bars if bar[1] <= WIDE * whole]
    edges = [0.4 if width > NARROW * whole else 0 for _, width in slim]
    axes.broken_barh(wide, (bottom, height), linewidth=0.4, **look)
    axes.broken_barh(slim, (bottom, height), linewidth=edges, facecolor=look["facecolor"], edgecolor=look["edgecolor"])


def merged(spans, narrow):
    """The spans, of which narrow ones that all but touch become one: single operators cannot be seen in a long run."""
    found, small = [], False
    for a, b in spans:
        if small and b - a <= narrow and a - found[-1][1] < narrow / 4:
            found[-1] = found[-1][0], b
        else:
            found.append((a, b))
            small = b - a <= narrow
    return found


def label(axes, names, start, end):
    size, unit = unit_for(end - start, SECONDS)
    axes.set_xlim(start, end)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds / size:g}")
    axes.set_xlabel(f"virtual time ({unit})")
    looks = {"compute": COMPUTE, "communication": COMMUNICATION, "waiting": WAITING}
    legend_beside(axes, [Patch(label=name, **look) for name, look in looks.items()])
