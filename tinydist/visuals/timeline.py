"""Who computed, communicated and waited, and when.

Each rank has a row: its compute stream above, its transfers below, and where several are under way at once, one below
the other. Where the two lie above each other, communication is hidden behind compute; dots are time lost in waiting.
"""

from matplotlib.patches import Patch

from .palette import COMMUNICATION, COMPUTE, WAITING, canvas, legend_beside, picture
from .words import SECONDS, seconds_text, unit_for

MOST_RANKS = 16  # more rows cannot be told apart
MANY = 60  # bars in a row, of which single ones can no longer be seen


@picture
def timeline(run, ranks=None, start=None, end=None):
    """Draw ``ranks`` (None: the first 16) from ``start`` to ``end``, in seconds of virtual time."""
    trace = run.trace
    ranks = list(range(len(trace.memory)))[:MOST_RANKS] if ranks is None else list(ranks)
    start, end = start or 0.0, trace.seconds if end is None else end
    rows = {rank: Row(trace, rank, start, end) for rank in ranks}
    print(summary(rows.values(), start, end, trace.seconds))
    figure, axes = canvas(height=max(2.0, 0.8 + 0.32 * len(ranks)))
    for place, row in enumerate(rows.values()):
        draw_row(axes, row, place, (end - start) / 1000)
    label(axes, ranks, start, end)
    return figure


class Row:
    """What one rank did between ``start`` and ``end``: (from, to), in the order of time."""

    def __init__(self, trace, rank, start, end):
        self.compute, self.waiting, self.communication = [], [], []
        for event in trace.of(rank):
            span = max(event.start, start), min(event.end, end)
            if span[0] < span[1]:
                self.of(event).append(span)

    def of(self, event):
        if event.stream != "compute":
            return self.communication
        return self.waiting if event.name == "wait" else self.compute


def summary(rows, start, end, seconds):
    total = len(rows) * (end - start) or 1.0
    compute, waiting, communication, hidden = (
        sum(each) for each in zip(*[(covered(r.compute), covered(r.waiting), covered(r.communication), hidden_in(r)) for r in rows])
    )
    when = seconds_text(end) if not start else f"{seconds_text(start)} to {seconds_text(end)}"
    text = f"{len(rows)} ranks, {when}: compute {compute / total:.0%}, waiting {waiting / total:.0%}"
    return text + f", communication {communication / total:.0%}" + (f", {hidden / communication:.0%} of it hidden" if communication else "")


def covered(spans):
    return sum(b - a for a, b in joined(spans))


def hidden_in(row):
    """Seconds of communication while the rank computes."""
    return covered(row.compute) + covered(row.communication) - covered(row.compute + row.communication)


def joined(spans, gap=0.0):
    """The same time in as few spans as can be; those nearer than ``gap`` become one."""
    found = []
    for a, b in sorted(spans):
        if found and a <= found[-1][1] + gap:
            found[-1] = found[-1][0], max(b, found[-1][1])
        else:
            found.append((a, b))
    return found


def lanes(spans):
    """As few lists as can be, in each of which the spans come one after another."""
    found = []
    for span in spans:
        lane = next((lane for lane in found if lane[-1][1] <= span[0]), None)
        if lane is None:
            found.append([span])
        else:
            lane.append(span)
    return found


def draw_row(axes, row, place, gap):
    draw_bars(axes, row.compute, place - 0.4, 0.4, gap, COMPUTE)
    draw_bars(axes, row.waiting, place - 0.4, 0.4, gap, WAITING)
    found = lanes(row.communication)
    for number, lane in enumerate(found):
        height = 0.4 / len(found)
        draw_bars(axes, lane, place + number * height, height, gap, COMMUNICATION)


def draw_bars(axes, spans, bottom, height, gap, look):
    if len(spans) > MANY:
        spans = joined(spans, gap)
    axes.broken_barh([(a, b - a) for a, b in spans], (bottom, height), linewidth=0.4, **look)


def label(axes, ranks, start, end):
    size, unit = unit_for(end - start, SECONDS)
    axes.set_xlim(start, end or 1.0)
    axes.set_ylim(len(ranks) - 0.5, -0.5)
    axes.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in ranks])
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds / size:g}")
    axes.set_xlabel(f"virtual time ({unit})")
    looks = {"compute": COMPUTE, "communication": COMMUNICATION, "waiting": WAITING}
    legend_beside(axes, [Patch(label=name, **look) for name, look in looks.items()])
