"""Heat maps side by side: attention weights, masks. Zero is white, the maximum is dark."""

from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from ..rules import amount, each_of, flag, many, must, named, stated, validate
from .canvas import canvas, picture
from .figure import WIDTH
from .formatting import counted, tell
from .palette import GREY, LINE, NUMBERS

MOST_NAMES = 16  # rows; labels of more do not fit
LARGEST_CELL, TALLEST = 0.34, 3.4  # inches: a cell, and all of them
AROUND, BETWEEN = 0.5, 0.35  # inches: what is written at the left of all; between two
LETTER = 0.1  # inches, of a title


cells = stated("a number >= 0, or True or False", lambda cell: amount(cell) or flag(cell))


@validate(tables=named(many), rows=str, columns=str)
@picture
def matrices(tables, rows, columns):
    """Draw ``tables``, title -> [R, C] of numbers from 0 or of bool; ``rows`` and ``columns`` say what they count."""
    tables = {title: numbers(table) for title, table in tables.items()}
    tell("; ".join(f"{title}: {filled(table)}" for title, table in tables.items()))
    cell, tallest = cell_size(tables.values()), max(map(len, tables.values()))
    widths = [max(len(table[0]), len(title) * LETTER / cell) for title, table in tables.items()]  # in cells
    options = {"ncols": len(tables), "squeeze": False, "width_ratios": widths}
    wide = WIDTH if len(tables) > 1 else min(WIDTH, AROUND + BETWEEN + cell * widths[0])
    figure, grid = canvas(alt_text(tables, rows, columns), cell * tallest + 0.95, wide, **options)
    for number, (axes, (title, table), width) in enumerate(zip(grid[0], tables.items(), widths)):
        draw_matrix(axes, table)
        axes.set(title=title, ylabel=rows if number == 0 else "", xlim=(0, width), anchor="NW")
        axes.set_xlabel(columns, loc="left" if width > len(table[0]) else "center")
    return figure


def numbers(table):
    table = must("matrices", "a table", each_of(each_of(cells)), getattr(table, "tolist", lambda: table)())
    if len({len(row) for row in table}) > 1:
        raise ValueError(f"matrices: a table's rows must have one length, got {[len(row) for row in table]}")
    return [[float(cell) for cell in row] for row in table]


def filled(table):
    return f"{sum(cell > 0 for row in table for cell in row)} of {len(table) * len(table[0])}"


def alt_text(tables, rows, columns):
    found = ", ".join(f"{title} with {filled(table)} cells filled" for title, table in tables.items())
    return f"{counted(len(tables), 'matrix')}, each {rows} a row and each {columns} a column: {found}."


def cell_size(tables):
    """Inches, the same in all: so that they can be compared."""
    room = WIDTH - AROUND - BETWEEN * len(tables)
    return min(LARGEST_CELL, room / sum(len(table[0]) for table in tables), TALLEST / max(map(len, tables)))


def draw_matrix(axes, table):
    """Names in the middle of the cells, and thin lines between them, as long as either can be told apart."""
    axes.pcolormesh(table, cmap=NUMBERS, vmin=0, vmax=max(map(max, table)) or 1)
    axes.set_aspect("equal")
    axes.set_ylim(len(table), 0)
    axes.spines[:].set_visible(False)
    axes.add_patch(
        Rectangle((0, 0), len(table[0]), len(table), facecolor="none", edgecolor=GREY, clip_on=False, zorder=3)
    )
    for axis, count in ((axes.yaxis, len(table)), (axes.xaxis, len(table[0]))):
        if count <= MOST_NAMES:
            shown = range(0, count, 1 if count <= 8 else 2)
            axis.set_ticks([each + 0.5 for each in shown], shown)
        else:
            axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
    rows, columns = len(table), len(table[0])
    if max(rows, columns) <= MOST_NAMES:
        axes.hlines(range(1, rows), 0, columns, color=LINE, linewidth=0.5)
        axes.vlines(range(1, columns), 0, rows, color=LINE, linewidth=0.5)
    axes.tick_params(which="both", length=0)
