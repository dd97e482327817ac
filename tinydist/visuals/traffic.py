"""The traffic matrix: bytes sent from each rank to each, within and between nodes.

A row for each sender, a column for each receiver; beside the rows what each sent in all, above the columns what each
received. Lines stand between nodes.
"""

import numpy as np
from matplotlib.patches import Patch

from ..launching.launch import Run
from ..rules import positive, validate
from ..tracing.trace import Trace
from .canvas import blocks, canvas, inside, picture
from .figure import HEADING, SMALL, TEXT
from .formatting import BYTES, bytes_text, digits, percent, ranks_text, tell, unit_for
from .palette import GREY, INK, ORANGE, PAPER, RED, tint

MOST_NAMES = 16  # ranks; with more, every fourth is labeled
MOST_ABOVE = 10  # bars side by side; labels of more would touch
CELL, TABLE, BARS = 0.46, 3.2, 2.2  # inches: a cell at most; all of them; the longest bar


@validate(run=Run | Trace, title=str, longest=positive)
@picture
def traffic(run, title=None, longest=None):
    """Draw the bytes from each rank to each, and what each rank sent and received in all.

    longest: bytes at the end of the bars' axis, at least; give two pictures the same to compare them.
    """
    matrix = np.rint(np.array([list(row) for row in run.traffic]))
    nodes = np.array([run.cluster.node_of(rank) for rank in range(len(matrix))])
    away = matrix * (nodes[:, None] != nodes)
    tell(summary(matrix, away, nodes))
    side = min(CELL * len(matrix), TABLE)
    ratios = {"width_ratios": [side, BARS], "height_ratios": [0.5, side]}
    size = {"height": side + 1.6 + 0.3 * bool(title), "width": side + BARS + 1.1}
    figure, ((above, corner), (table, beside)) = canvas(
        alt_text(matrix, away, nodes), **size, nrows=2, ncols=2, sharex="col", sharey="row", **ratios
    )
    most = max(matrix.sum(0).max(), matrix.sum(1).max(), longest or 0)
    draw_totals(above, above.bar, matrix.sum(0), away.sum(0), most)
    draw_totals(beside, beside.barh, matrix.sum(1), away.sum(1), most)
    draw_matrix(table, matrix, nodes)
    _, unit = unit_for(most, BYTES)
    above.set_title(f"received ({unit})", fontweight="normal", fontsize=TEXT, pad=16)
    beside.set_title(f"sent ({unit})", fontweight="normal", fontsize=TEXT)
    explain(corner, away)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=HEADING, fontweight="bold")
    return figure


def summary(matrix, away, nodes):
    sent, received = matrix.sum(1), matrix.sum(0)
    if not sent.any():
        return f"{ranks_text(len(sent))} sent nothing"
    busiest = int((sent + received).argmax())
    both = f"sent {bytes_text(sent[busiest])} and received"
    if len({*sent, *received}) == 1:
        who = f"each {both} as much"
    else:
        who = f"the busiest is rank {busiest}, which {both} {bytes_text(received[busiest])}"
    left = f"; {bytes_text(away.sum())} left their node" * bool(nodes.any())
    return f"{ranks_text(len(sent))} sent {bytes_text(sent.sum())} in all: {who}{left}"


def alt_text(matrix, away, nodes):
    most, cells = matrix.max(), f"{int((matrix > 0).sum())} of {matrix.size} cells are filled"
    text = f"A table of the bytes from each of {ranks_text(len(matrix))} to each: {cells}"
    if not most:
        return text + "."
    source, destination = (int(place[0]) for place in np.nonzero(matrix == most))
    text += f", the most with {bytes_text(most)}, from rank {source} to rank {destination}"
    return text + f"; {percent(away.sum() / matrix.sum())} of all bytes go from node to node" * bool(nodes.any()) + "."


def draw_matrix(axes, matrix, nodes):
    size, unit = unit_for(matrix.max(), BYTES)
    ranks, most = len(matrix), matrix.max() or 1
    boxes, faces = [], []
    for source, destination in zip(*np.nonzero(matrix)):
        nbytes = matrix[source, destination]
        color = ORANGE if nodes[source] == nodes[destination] else RED
        boxes.append((destination - 0.5, source - 0.5, 1, 1))
        faces.append(tint(color, 0.5 * (1 - nbytes / most)))
        inside(axes, boxes[-1], digits(nbytes / size), faces[-1], together=axes)
    blocks(axes, boxes, facecolors=faces, edgecolors=PAPER, linewidths=0.5)
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color(GREY)
    for edge in np.flatnonzero(np.diff(nodes)) + 0.5:
        axes.axhline(edge, color=INK, linewidth=1.2)
        axes.axvline(edge, color=INK, linewidth=1.2)
    shown = range(0, ranks, 1 if ranks <= MOST_NAMES else -(-ranks // 16 // 4) * 4)
    shades = "; darker is more" * (ranks > MOST_ABOVE)  # cells are too small for numbers
    axes.set(xlabel=f"to rank ({unit}{shades})", ylabel="from rank", xticks=shown, yticks=shown)
    axes.set(xlim=(-0.5, ranks - 0.5), ylim=(ranks - 0.5, -0.5))
    axes.tick_params(length=0)


def draw_totals(axes, draw, totals, away, most):
    """Bars beside the rows, or above the columns; the bytes that left their node first."""
    (size, _), ranks, above = unit_for(most, BYTES), range(len(totals)), draw == axes.bar
    draw(ranks, away / size, 0.7, color=RED)
    draw(ranks, (totals - away) / size, 0.7, away / size, color=ORANGE)
    (axes.set_ylim if above else axes.set_xlim)(0, most / size or 1)
    axes.axis("off")
    if len(totals) > (MOST_ABOVE if above else MOST_NAMES):
        return
    place = {"ha": "center", "va": "bottom"} if above else {"va": "center"}
    for rank, nbytes in enumerate(totals):
        end, by = ((rank, nbytes / size), (0, 2)) if above else ((nbytes / size, rank), (4, 0))
        if nbytes:
            axes.annotate(digits(nbytes / size), end, by, textcoords="offset points", fontsize=SMALL, **place)


def explain(axes, away):
    axes.axis("off")
    if away.any():
        there = [("inside a node", ORANGE), ("to another node", RED)]
        axes.legend(handles=[Patch(label=name, facecolor=color) for name, color in there], loc="upper left")
