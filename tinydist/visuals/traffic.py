"""Who sent how many bytes to whom."""

from .palette import BLUE, canvas, picture
from .words import BYTES, bytes_text, digits, unit_for

MOST_NUMBERS = 8  # ranks, with more of which the numbers do not fit


@picture
def traffic(run):
    """Draw the bytes from each rank to each, and beside it what each rank sent in all."""
    matrix = run.traffic
    sent = [sum(row) for row in matrix]
    print(summary(matrix, sent))
    figure, (left, right) = canvas(height=2.8, ncols=2, width_ratios=[1.2, 1])
    draw_matrix(left, matrix)
    draw_totals(right, sent)
    return figure


def summary(matrix, sent):
    busiest = sent.index(max(sent))
    received = [sum(column) for column in zip(*matrix)]
    return (
        f"{len(sent)} ranks sent {bytes_text(sum(sent))}: rank {busiest} sent most, {bytes_text(sent[busiest])}; "
        f"rank {received.index(max(received))} received most, {bytes_text(max(received))}"
    )


def draw_matrix(axes, matrix):
    largest = max(max(row) for row in matrix)
    size, unit = unit_for(largest, BYTES)
    axes.imshow(matrix, cmap="Blues", vmin=0, vmax=1.3 * largest or 1)
    if len(matrix) <= MOST_NUMBERS:
        for source, row in enumerate(matrix):
            for destination, nbytes in enumerate(row):
                if nbytes:
                    axes.text(destination, source, digits(nbytes / size), ha="center", va="center", fontsize=7)
    axes.set_xlabel(f"to rank ({unit})")
    axes.set_ylabel("from rank")


def draw_totals(axes, sent):
    size, unit = unit_for(max(sent), BYTES)
    axes.barh(range(len(sent)), [nbytes / size for nbytes in sent], color=BLUE)
    axes.set_ylim(len(sent) - 0.5, -0.5)
    axes.set_xlabel(f"sent in all ({unit})")
