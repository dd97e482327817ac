"""Who sent how many bytes to whom."""

from ..launch import Run
from ..rules import takes
from ..simulator.trace import Trace
from .canvas import canvas, picture
from .palette import BYTES_SENT, COMMUNICATION, RECEIVED
from .words import BYTES, bytes_text, digits, ranks_text, unit_for

MOST_NUMBERS = 8  # ranks, with more of which the numbers do not fit


@takes(run=Run | Trace)
@picture
def traffic(run):
    """Draw the bytes from each rank to each, and beside it what each rank sent and received in all."""
    matrix = [[round(nbytes) for nbytes in row] for row in run.traffic]
    sent, received = [sum(row) for row in matrix], [sum(column) for column in zip(*matrix)]
    print(summary(sent, received))
    figure, (left, right) = canvas("", height=2.8, ncols=2, width_ratios=[1.1, 1])
    draw_matrix(left, matrix)
    draw_totals(right, sent, received)
    return figure


def summary(sent, received):
    text = f"{ranks_text(len(sent))} sent {bytes_text(sum(sent))} in all: "
    if not any(sent):
        return f"{ranks_text(len(sent))} sent nothing"
    both = list(zip(sent, received))
    if max(both) == min(both):
        return text + f"each sent {bytes_text(sent[0])} and received as much"
    busiest = max(range(len(both)), key=lambda rank: sum(both[rank]))
    return (
        text + f"the busiest is rank {busiest}, which sent {bytes_text(sent[busiest])} "
        f"and received {bytes_text(received[busiest])}"
    )


def draw_matrix(axes, matrix):
    largest = max(map(max, matrix))
    size, unit = unit_for(largest, BYTES)
    axes.imshow(matrix, cmap=BYTES_SENT, vmin=0, vmax=largest or 1)
    axes.spines[:].set_visible(True)
    if len(matrix) <= MOST_NUMBERS:
        for source, row in enumerate(matrix):
            for destination, nbytes in enumerate(row):
                if nbytes:
                    text = digits(nbytes / size)
                    axes.text(destination, source, text, ha="center", va="center", fontsize=7)
        axes.set_xticks(range(len(matrix)))
    axes.set_xlabel(f"to rank ({unit})")
    axes.set_ylabel("from rank")
    label_ranks(axes, len(matrix))


def draw_totals(axes, sent, received):
    size, unit = unit_for(max(sent + received), BYTES)
    ranks = range(len(sent))
    for nbytes, offset, look in [(sent, -0.2, COMMUNICATION), (received, 0.2, RECEIVED)]:
        label = "sent" if offset < 0 else "received"
        if len(sent) > MOST_NUMBERS:
            look = look | {"hatch": None, "linewidth": 0.4}
        axes.barh([rank + offset for rank in ranks], [n / size for n in nbytes], 0.38, label=label, **look)
    axes.set_xlabel(f"in all ({unit})")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 0.98), ncols=2)
    label_ranks(axes, len(sent))


def label_ranks(axes, ranks):
    axes.set_ylim(ranks - 0.5, -0.5)
    if ranks <= MOST_NUMBERS:
        axes.set_yticks(range(ranks))
