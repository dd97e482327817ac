"""What ranks hold, step by step: a small table for each step, a row for each rank, a column for each part.

    start          step 0         step 1             A1: rank 0's part 1      AB1: ranks 0 and 1 added up
    A1 .  .        A1 .  C3       A1 B2 C3           Σ1: all ranks added up   .: nothing
    .  B2 .        A1 B2 .        A1 B2 C3
    .  .  C3       .  B2 C3       A1 B2 C3           arrows: what was sent to whom in this step

A cell is a text, whose capital letters name ranks (A is rank 0) and choose its colors, or a whole number, of which the
digit with the value 10**r tells what is in of rank r: 300 is C3, 330 is BC3, 3333 of four ranks is Σ3.
"""

from collections import Counter
from string import ascii_uppercase as LETTERS

from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from ..launch import Run
from ..rules import each_of, finite, is_tensor, many, stated, takes
from .canvas import canvas, picture
from .palette import GREY, LIGHT, RANKS
from .words import ranks_text

MOST_FRAMES, ONE_ROW = 12, 4
SMALLEST = 5.0  # points: what is smaller cannot be read


rows = stated("a row of cells", lambda row: many(row) and len(row) > 0)


@takes(frames=each_of(each_of(rows), 0), run=Run, titles=each_of(str))
@picture
def filmstrip(frames, run=None, titles=None):
    """Draw ``frames[step][rank][part]``, the first of them before the first step. A tensor may stand for a row.

    With ``run``, each step has the messages that started at its time as arrows, each into a cell that changed.
    """
    tables = [[[in_letters(cell) for cell in row] for row in frame] for frame in frames]
    titles = titles or ["start"] + [f"step {step}" for step in range(len(tables) - 1)]
    sent = [[]] + steps_of(run) if run else [[]] * len(tables)
    check(tables, titles, sent)
    complete = set(LETTERS[: len(tables[0])])
    print(summary(tables, complete))
    figure, grid = grid_for(tables)
    for number, (axes, table) in enumerate(zip(grid, tables)):
        before = tables[number - 1] if run and number else table
        draw_table(axes, table, before, complete, size_of_text(tables, len(grid)))
        draw_arrows(axes, table, before, sent[number])
        axes.set_title(titles[number], fontsize=8)
    for axes in grid[len(tables) :]:
        axes.set_visible(False)
    return figure


def in_letters(cell):
    """The text of a cell: 330 is BC3, and 340, in which different parts are mixed, is B4C3."""
    if isinstance(cell, str):
        return cell
    value = cell.item() if is_tensor(cell) else cell
    if not (finite(value) and value >= 0 and value % 1 == 0):
        raise ValueError(f"filmstrip: a cell is a text or a whole number from 0, got {value}")
    parts = [(LETTERS[rank], digit) for rank, digit in enumerate(reversed(str(int(value)))) if digit != "0"]
    if len({digit for _, digit in parts}) == 1:
        return "".join(letter for letter, _ in parts) + parts[0][1]
    return "".join(letter + digit for letter, digit in parts)


def letters_in(cell):
    return [letter for letter in cell if letter in LETTERS]


def check(tables, titles, sent):
    if not 1 <= len(tables) <= MOST_FRAMES:
        raise ValueError(f"filmstrip: it has room for 1 to {MOST_FRAMES} frames, got {len(tables)}")
    if len(ranks := {len(table): True for table in tables}) > 1:
        raise ValueError(f"filmstrip: every frame needs as many ranks, got {', '.join(map(str, ranks))}")
    if max(ranks) > len(RANKS):
        raise ValueError(f"filmstrip: it has colors for {len(RANKS)} ranks, got {max(ranks)}")
    if len(parts := {len(row): True for table in tables for row in table}) > 1:
        got = ", ".join(map(str, parts))
        raise ValueError(f"filmstrip: every frame needs as many parts on each rank, got rows of {got} cells")
    if len(titles) != len(tables):
        raise ValueError(f"filmstrip: {len(tables)} frames need as many titles, got {len(titles)}")
    if len(sent) != len(tables):
        steps = f"the run has {len(sent) - 1} steps of messages, so {len(sent)} frames"
        raise ValueError(f"filmstrip: {steps}, but got {len(tables)}")


def steps_of(run):
    """(source, destination) of the messages of a run, those that started together in one list."""
    steps = {}
    for event in run.trace.events:
        if event.name == "message":
            steps.setdefault(round(event.start, 12), {})[event.transfer.ranks] = True
    return [list(steps[start]) for start in sorted(steps)]


def summary(tables, complete):
    ranks, parts = len(tables[0]), len(tables[0][0])
    text = f"{ranks_text(ranks)} x {parts} part{'s' * (parts != 1)}: filled {counted(tables, letters_in)}"
    added = any(len(letters_in(cell)) > 1 for table in tables for row in table for cell in row)
    return text + f"; with all ranks added up {counted(tables, complete.issubset)}" * added


def counted(tables, test):
    return ", ".join(str(sum(bool(test(cell)) for row in table for cell in row)) for table in tables)


# The drawing.


def grid_for(tables):
    """A figure and as many axes as frames, in one row or two."""
    rows = 1 if len(tables) <= ONE_ROW else 2
    columns = -(-len(tables) // rows)
    ranks, parts = len(tables[0]), len(tables[0][0])
    height = min(2.0, max(1.0, 5.6 / columns * ranks / parts)) + 0.35
    figure, grid = canvas("", height=rows * height, nrows=rows, ncols=columns, squeeze=False)
    for row in grid:
        row[0].set_yticks(range(ranks), [f"{rank}: {LETTERS[rank]}" for rank in range(ranks)], fontsize=7)
        for axes in row[1:]:
            axes.set_yticks([])
    return figure, list(grid.flat)


def size_of_text(tables, frames):
    """Points, so that four characters fit into a cell."""
    columns = frames if frames <= ONE_ROW else frames // 2
    return min(8.0, 72 * (5.5 / columns - 0.1) / len(tables[0][0]) / 2.7)


def draw_table(axes, table, before, complete, size):
    axes.set_xlim(-0.5, len(table[0]) - 0.5)
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for rank, row in enumerate(table):
        for part, cell in enumerate(row):
            draw_cell(axes, part, rank, cell, new=cell != before[rank][part])
            text = text_of(cell, complete, short=size < SMALLEST)
            weight = "bold" if text.startswith("Σ") else "normal"
            look = {"fontsize": max(size, SMALLEST), "fontweight": weight, "zorder": 4}
            axes.text(part, rank, text, ha="center", va="center", **look)


def text_of(cell, complete, short):
    """What fits: the cell itself, how many of all ranks are in, or the sum alone."""
    full = len(complete) > 1 and complete.issubset(cell)
    if short or full:
        return full * ("Σ" if short else "Σ" + cell.strip(LETTERS))
    return cell if len(cell) <= 4 else f"{len(letters_in(cell))}/{len(complete)}"


def draw_cell(axes, part, rank, cell, new):
    """A stripe for each rank that is in; a heavy frame around what is new."""
    owners = letters_in(cell)
    width = 0.92 / max(1, len(owners))
    for number, letter in enumerate(owners):
        place = (part - 0.46 + number * width, rank - 0.46)
        axes.add_patch(Rectangle(place, width, 0.92, facecolor=tint(RANKS[LETTERS.index(letter) % len(RANKS)])))
    edge = {"edgecolor": "black", "linewidth": 1.4, "zorder": 3} if new else {"edgecolor": GREY, "linewidth": 0.6}
    face = "none" if owners else LIGHT if cell else "white"
    axes.add_patch(Rectangle((part - 0.46, rank - 0.46), 0.92, 0.92, facecolor=face, **edge))


def tint(color):
    """Halfway to white: black text stays readable on it."""
    return tuple((1 + part) / 2 for part in to_rgb(color))


def draw_arrows(axes, table, before, messages):
    """One for each message, in a column that it changed, beside the text and beside the others."""
    look = {"arrowstyle": "-|>", "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 6, "color": "black"}
    drawn = Counter()
    for source, destination in messages:
        both = zip(table[destination], before[destination])
        if changed := [part for part, (new, old) in enumerate(both) if new != old]:
            part = min(reversed(changed), key=lambda part: drawn[part])
            x = part + 0.38 - 0.25 * drawn[part] / len(messages)
            down = 0.2 if destination > source else -0.2
            axes.annotate("", (x, destination - down), (x, source + down), arrowprops=look, zorder=5)
            drawn[part] += 1
