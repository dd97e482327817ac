"""Tables of numbers beside one another: attention weights, masks, who reads whom. Nothing is white, the most dark."""

from matplotlib.colors import LinearSegmentedColormap

from ..rules import amount, each_of, flag, many, must, named, stated, takes
from .canvas import canvas, picture
from .palette import BLUE

SHADES = LinearSegmentedColormap.from_list("numbers", ["white", BLUE])
MOST_NAMES = 16  # rows, with more of which their numbers do not fit
WIDTH, LARGEST_CELL = 6, 0.3  # inches


cells = stated("a number from 0, or True or False", lambda cell: amount(cell) or flag(cell))


@takes(tables=named(many), rows=str, columns=str)
@picture
def matrices(tables, rows, columns):
    """Draw ``tables``, title -> [R, C] of numbers from 0 or of bool; ``rows`` and ``columns`` say what they count."""
    tables = {title: numbers(table) for title, table in tables.items()}
    print("; ".join(f"{title}: {filled(table)}" for title, table in tables.items()))
    figure, grid = canvas("", height(tables.values()), ncols=len(tables), squeeze=False)
    for number, (axes, (title, table)) in enumerate(zip(grid[0], tables.items())):
        axes.imshow(table, cmap=SHADES, vmin=0, vmax=max(map(max, table)) or 1)
        axes.spines[:].set_visible(True)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(columns)
        axes.set_ylabel(rows if number == 0 else "")
        lines(axes, len(table), len(table[0]))
    return figure


def numbers(table):
    table = must("matrices", "a table", each_of(each_of(cells)), getattr(table, "tolist", lambda: table)())
    if len({len(row) for row in table}) > 1:
        raise ValueError(f"matrices: a table's rows must have one length, got {[len(row) for row in table]}")
    return [[float(cell) for cell in row] for row in table]


def filled(table):
    return f"{sum(cell > 0 for row in table for cell in row)} of {len(table) * len(table[0])}"


def height(tables):
    """Room for square cells, and for what is written around them."""
    width = (WIDTH - 0.6) / len(tables) - 0.3
    cells = (len(table) * min(LARGEST_CELL, width / len(table[0])) for table in tables)
    return min(3.6, max(cells) + 0.85)


def lines(axes, rows, columns):
    """Ticks in the middle of the cells, and thin lines between them, as long as either can be told apart."""
    for axis, count in ((axes.yaxis, rows), (axes.xaxis, columns)):
        if count <= MOST_NAMES:
            axis.set_ticks(range(0, count, 1 if count <= 8 else 2))
            axis.set_ticks([edge - 0.5 for edge in range(1, count)], minor=True)
    axes.grid(which="minor", color="#DDDDDD", linewidth=0.5)
    axes.tick_params(which="both", length=0, labelsize=7)
