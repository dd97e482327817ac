"""Step tables of a collective: what each rank (row) holds of each part (column) after each step.

    start          step 0         step 1             A1: rank 0's part 1      AB1: ranks 0 and 1 added up
    A1 .  .        A1 .  C3       A1 B2 C3           Σ1: all ranks added up   .: nothing
    .  B2 .        A1 B2 .        A1 B2 C3
    .  .  C3       .  B2 C3       A1 B2 C3           arrows: what was sent to whom in this step

Each rank has a color, and a cell a stripe for each rank that is in it. A heavy frame is around what is new.
"""

from collections import Counter
from string import ascii_uppercase as LETTERS
from typing import NamedTuple

from ipywidgets import IntSlider
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path

from ..launching.launch import Run
from ..rules import each_of, must, validate, whole
from .canvas import blocks, canvas, inside, picture
from .explorer import Explorer, drawn
from .figure import WIDTH
from .formatting import counted, ranks_text, tell
from .palette import GREY, INK, PAPER, RANKS, SOFT, tint
from .step_cells import frame_numbers, frames_of, frames_or_run, letters_in, ranks_in, texts_of

MOST_FRAMES, IN_A_ROW = 12, 4
ROOM, BETWEEN = WIDTH - 0.45, 0.05  # inches: for all frames of a row; between them
NARROWEST, WIDEST, LANE = 0.36, 1.1, 0.07  # from a part to the next; for an arrow
PALER = 0.45  # than an owner's color: black text can be read on it


@validate(run=frames_or_run, titles=each_of(str), only=each_of(whole), columns=each_of(str), computed=each_of(whole, 0))
@picture
def steps(run, titles=None, only=None, columns=None, computed=()):
    """Draw what each rank held before the first step, and after each.

    run:   its result on each rank is a list: the rank's row of cells (step_cells.py) at the start and after each step.
           Messages that started together are a step, drawn as arrows into the cells that they changed. Or frames
           without messages: [step][rank] -> row.
    only:  the numbers of the frames to draw, 0 being the start; None: all, and at most 12.
    columns:  a name for each part. computed: numbers of parts that no message brings.
    """
    tables, titles, sent = frames_of(run, titles)
    parts = len(tables[0][0])
    if len(columns or tables[0][0]) != parts:
        raise ValueError(f"steps: {parts} parts need one name each, got {len(columns)} columns")
    only = list(range(len(tables))) if only is None else must("steps", "only", frame_numbers(len(tables)), only)
    if len(only) > MOST_FRAMES:
        raise ValueError(
            f"steps: it has room for 1 to {MOST_FRAMES} frames, got {len(only)}: choose some with only=[...]"
        )
    tell(summary([tables[number] for number in only]))
    moved = [arrivals(tables[number], tables[max(0, number - 1)], sent[number]) for number in only]
    moved = [[arrow for arrow in arrows if arrow[2] not in computed] for arrows in moved]
    size = measures(tables[0], moved)
    figure, grid = grid_for(alt_text(tables, titles, only), tables[0], len(only), size)
    for axes, number, arrows in zip(grid, only, moved):
        before = tables[number - 1] if number and isinstance(run, Run) else tables[number]
        draw_table(axes, tables[number], before, size)
        if columns or (any(moved) and parts > 1):
            name_parts(axes, tables[number], columns)
        for arrow, lane in lanes_of(arrows).items():
            draw_arrow(axes, arrow, lane, size.cell, size.lane / size.part)
        axes.set_title(titles[number])
    return figure


def stepper(run, titles=None):
    """The same with a slider, one step at a time; without a kernel all steps are shown."""
    return Stepper(run, titles)


class Stepper(Explorer):
    def __init__(self, run, titles):
        self.run, self.titles = run, titles
        tables, _, _ = frames_of(run, titles)
        slider = IntSlider(min(1, len(tables) - 1), max=len(tables) - 1, description="picture")
        super().__init__(lambda step: steps(run, titles, only=[step]), step=slider)

    def still(self):
        frames = len(frames_of(self.run, self.titles)[0])
        some = min(frames, MOST_FRAMES)
        chosen = [number * (frames - 1) // max(1, some - 1) for number in range(some)]
        return drawn(steps, {"run": self.run, "titles": self.titles, "only": chosen})[0]


def summary(tables):
    ranks, parts = len(tables[0]), len(tables[0][0])
    text = f"{ranks_text(ranks)} x {counted(parts, 'part')}: filled {each_count(tables, letters_in)}"
    added = any(len(letters_in(cell)) > 1 for table in tables for row in table for cell in row)
    return text + f"; with all ranks added up {each_count(tables, set(LETTERS[:ranks]).issubset)}" * added


def each_count(tables, test):
    return ", ".join(str(sum(bool(test(cell)) for row in table for cell in row)) for table in tables)


def alt_text(tables, titles, only):
    ranks, parts = len(tables[0]), len(tables[0][0])
    first, last = tables[only[0]], tables[only[-1]]
    return (
        f"What {ranks_text(ranks)} hold of {counted(parts, 'part')}, in {counted(len(only), 'table')} "
        f"with a row for each rank: {titles[only[0]]}, {filled(first)}"
        + f", to {titles[only[-1]]}, {filled(last)}" * (len(only) > 1)
        + "."
    )


def filled(table):
    cells = [cell for row in table for cell in row]
    return f"with {sum(map(bool, cells))} of {len(cells)} cells filled"


# The drawing.


class Measures(NamedTuple):
    """In inches, of a figure of as many columns of frames; the middle of a cell is at (part, rank)."""

    columns: int
    part: float  # from one part to the next
    rank: float
    lane: float  # for an arrow
    gutter: float  # at the right of a cell, of all lanes
    gap: float  # below it
    head: float  # above all of them

    @property
    def cell(self):
        """Half of its width and of its height, in parts and ranks."""
        return (self.part - self.gutter - 0.04) / self.part / 2, (self.rank - self.gap) / self.rank / 2


def measures(table, moved):
    parts, arrows = len(table[0]), any(moved)
    columns = min(len(moved), IN_A_ROW, max(1, int(ROOM / (parts * NARROWEST + BETWEEN))))
    lanes = 1 + max((lane for each in moved for lane in lanes_of(each).values() if lane is not None), default=-1)
    part = min(WIDEST, (ROOM / columns - BETWEEN) / parts)
    lane = min(LANE, part / 2 / max(1, lanes))
    rank, gap, head = (0.44, 0.13, 0.52) if arrows else (0.34, 0.02, 0.38)
    return Measures(columns, part, rank, lane, lane * lanes, gap, head)


def grid_for(alt, table, frames, size):
    """A picture, and axes for as many frames."""
    ranks, lines = len(table), -(-frames // size.columns)
    figure, grid = canvas(alt, lines * (size.rank * ranks + size.head), nrows=lines, ncols=size.columns, squeeze=False)
    for axes in grid.flat:
        left = -size.cell[0] - 0.02
        axes.set_xlim(left, left + (ROOM / size.columns - BETWEEN) / size.part)
        axes.set_ylim(ranks - 0.5, -0.5)
        axes.spines[:].set_visible(False)
        axes.set(xticks=[], yticks=[])
    for axes in grid[:, 0]:
        axes.set_yticks(range(ranks), [f"{rank}: {LETTERS[rank]}" for rank in range(ranks)])
        axes.set_ylabel("rank")
        axes.tick_params(length=0)
    for axes in grid.flat[frames:]:
        axes.set_visible(False)
    return figure, grid.flat


def name_parts(axes, table, names=None):
    """The part's number above its column, where it has no name: cells may have no room for it."""
    numbers = [{cell.strip(LETTERS) for cell in column} - {""} for column in zip(*table)]
    names = names or [each.pop() if len(each) == 1 else "" for each in numbers]
    axes.set_xticks(range(len(numbers)), names, color=SOFT)
    axes.tick_params(axis="x", length=0, labeltop=True, labelbottom=False)


def draw_table(axes, table, before, size):
    (wide, high), filled, colors, outlines = size.cell, [], [], {False: [], True: []}
    for rank, row in enumerate(table):
        for part, cell in enumerate(row):
            box = (part - wide, rank - high, 2 * wide, 2 * high)
            filled += stripes(box, len(ranks_in(cell)))
            colors += [tint(RANKS[owner], PALER) for owner in ranks_in(cell)]
            outlines[cell != before[rank][part]].append(box)
            texts = texts_of(cell, len(table))
            weight = "bold" if texts[-1] == "Σ" else "normal"
            inside(axes, box, texts, PAPER, together=axes.figure, fontweight=weight)
    blocks(axes, filled, facecolors=colors, linewidths=0.5)
    blocks(axes, outlines[False], facecolors="none", edgecolors=GREY, linewidths=0.5)
    blocks(axes, outlines[True], facecolors="none", edgecolors=INK, linewidths=1.8, zorder=3)  # what is new


def stripes(box, owners):
    """A box for each owner, side by side."""
    left, bottom, width, height = box
    width /= max(1, owners)
    return [(left + number * width, bottom, width, height) for number in range(owners)]


def arrivals(table, before, messages):
    """(source, destination, part): for each cell that has changed, the message that has changed it.

    Of several to one rank it is that of a source which had what is new; of several such, the one with fewest cells yet.
    Where no source had all of it, each of those that had a summand has an arrow.
    """
    found = []
    for destination in dict.fromkeys(destination for _, destination in messages):
        sources, told = [source for source, other in messages if other == destination], Counter()
        for part, (new, old) in enumerate(zip(table[destination], before[destination])):
            if new != old:
                added = set(letters_in(new)) - set(letters_in(old))
                had = [source for source in sources if added <= set("".join(before[source]))]
                summands = {source: set(letters_in(before[source][part])) for source in sources}
                parts = [source for source in sources if summands[source] and summands[source] <= added]
                one = [min(had or sources, key=lambda source: told[source])]
                for source in one if had or not parts else parts:
                    told[source] += 1
                    found.append((source, destination, part))
    return found


def lanes_of(arrows):
    """Arrow -> its lane in the gutter, counted from the cells; None for those between neighbors."""
    lanes = {}
    for arrow in sorted(arrows, key=lambda arrow: abs(arrow[0] - arrow[1])):
        taken = {lanes[other] for other in lanes if other[2] == arrow[2] and meet(arrow, other)}
        near = abs(arrow[0] - arrow[1]) == 1
        lanes[arrow] = None if near else next(lane for lane in range(len(arrows)) if lane not in taken)
    return lanes


def meet(one, other):
    """Do the rows that they pass, with those where they begin and end, have one in common?"""
    return max(min(one[:2]), min(other[:2])) <= min(max(one[:2]), max(other[:2]))


def draw_arrow(axes, arrow, lane, cell, lane_width):
    """``cell`` is (half its width, half its height); a cell's middle is at (part, rank)."""
    source, destination, part = arrow
    wide, high = cell
    if lane is None:
        down = 1 if destination > source else -1
        way = [(part, source + down * high), (part, destination - down * high)]
    else:
        x = part + wide + (lane + 1) * lane_width
        low = 0.3 * high if destination > source else -0.3 * high  # beside an arrow that comes in
        way = [(part + wide, source + low), (x, source + low), (x, destination - low), (part + wide, destination - low)]
    style = {"arrowstyle": "-|>,head_length=3,head_width=1.8", "linewidth": 1.1, "color": INK, "joinstyle": "miter"}
    axes.add_patch(FancyArrowPatch(path=Path(way), shrinkA=0, shrinkB=0, zorder=4, **style))
