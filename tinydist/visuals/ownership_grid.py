"""A grid of ranks x layers: each cell shows which shards of a layer a rank holds, in the colors of their owners.

    bands of all colors    an unsharded layer, each rank owning a part: rows or columns of its tensors
    one band               the part that this rank owns
    one color              a whole layer that no other rank has
    grey                   a copy of its own: others have theirs

What is held is the ledger's word: ``trace.owners``. A column is a label of the ledger: a layer, a weight, a stage, an
expert, or what the program has labelled.
"""

from matplotlib.patches import Patch

from .canvas import blocks
from .figure import SMALL
from .palette import GREY, PAPER, RANKS, SOFT
from .time_axis import inches_of

COPY, OWN_COPY = GREY, "each rank's own copy"
MODEL_STATES = ["parameters", "gradients", "optimizer states"]
HEAD = 0.04  # inches between a column and its head
NOTHING = 0.01  # of a cell: cannot be seen
TO_ALL = {"all_gather", "all_reduce", "reduce_scatter", "all_to_all"}
FROM_ROOT, TO_ROOT = {"broadcast", "scatter"}, {"reduce", "gather"}


def labels_of(scene, purpose, labels=None):
    """Label -> what it is called: these, or the layers of the model, or all that is held for ``purpose``."""
    if labels is not None:
        return {label: label for label in labels}
    names = scene.names
    if purpose in MODEL_STATES and names.holding:
        return {part: name for part, name in names.called.items() if part in names.holding}
    changes = [change for held in scene.trace.memory for change in held.changes]
    labels = sorted({change.label for change in changes if change.purpose == purpose and change.label})
    if not labels:
        raise ValueError(f"{scene.operation}: of {purpose} no tensor has a label: set one with tinydist.label")
    return {label: label for label in labels}


def headed(labels):
    """(a word for all columns, the head of each): "stage" and 0, 1, 2; "layer", or what they are in, and 1, 2."""
    numbers = [label for label, name in labels.items() if name.isdigit()]
    if numbers:
        inside = {label.rpartition(".")[0].rpartition(".")[2] for label in numbers}
        return inside.pop() if len(inside) == 1 and "" not in inside else "layer", list(labels.values())
    words, heads = zip(*(name.rpartition(" ")[::2] for name in labels.values()))
    return (words[0], list(heads)) if len({*words}) == 1 else ("", list(labels.values()))


def that_ran(trace):
    """Ranks that held anything."""
    return [rank for rank, held in enumerate(trace.memory) if held.changes]


class Cells:
    """Of these ``labels``, label -> what it is called, on these ``ranks``."""

    def __init__(self, trace, ranks, labels):
        self.trace, self.ranks, self.labels = trace, ranks, list(labels)
        self.word, self.names = headed(labels)
        changes = [(rank, change) for rank in ranks for change in trace.memory[rank].changes]
        inside = {label: [each for each in changes if is_inside(each[1].label, label)] for label in labels}
        self.holders = {label: {rank for rank, _ in found} for label, found in inside.items()}
        shards = {label: [each.shard for _, each in found if each.shard is not None] for label, found in inside.items()}
        some = len(that_ran(trace)) < len(trace.memory)  # the others are taken to do the same
        everyone = list(range(len(trace.memory)))
        self.owners = {label: everyone if some and found else sorted({*found}) for label, found in shards.items()}
        self.across = {label: bool(found) and all(shard.dim for shard in found) for label, found in shards.items()}

    def at(self, moment, purpose):
        """[rank][label] -> bands: (left, top, width, height, color), as parts of the cell."""
        grid = self.trace.owners(moment, purpose=purpose, labels=self.labels)
        return [[self.boxes(rank, label, grid[rank][label], purpose) for label in self.labels] for rank in self.ranks]

    def boxes(self, rank, label, cell, purpose):
        bands = self.bands(rank, label, cell, purpose)
        if self.across[label]:
            return [(begin, 0.0, part, 1.0, color) for begin, part, color in bands]
        return [(0.0, begin, 1.0, part, color) for begin, part, color in bands]

    def bands(self, rank, label, cell, purpose):
        """(from, part, color), from the first row, or column, to the last."""
        owners, whole = self.owners[label], min(1.0, cell.shards.get(None, 0) / (cell.whole or 1))
        share = 1 / max(1, len(owners))
        found = [(owners.index(owner) * share, share, color_of(owner)) for owner in cell.shards if owner is not None]
        if whole < NOTHING:
            return found
        if owners and purpose != "gradients":  # those are each rank's own, until they are reduced
            return [(place * share, whole * share, color_of(owner)) for place, owner in enumerate(owners)] + found
        return [(0.0, whole, color_of(rank) if self.is_alone(rank, label) else COPY), *found]

    def is_alone(self, rank, label):
        """Has no other rank anything of it? Of several ranks."""
        found = next((ranks for name, ranks in self.holders.items() if is_inside(label, name)), set())
        return found == {rank} and len(self.ranks) > 1


def color_of(rank):
    return RANKS[rank % len(RANKS)]


def is_inside(name, label):
    return name == label or name.startswith(f"{label}.")


def draw_cells(axes, grid, left, top, width, height, scale=1.0):
    """A grid with cells of ``width`` x ``height`` inches; ``scale``: what an inch is on the x axis."""
    cells, filled, colors = [], [], []
    for row, column, boxes in each_of(grid):
        x, y = left + scale * (column + 0.06) * width, top + (row + 0.07) * height
        wide, high = 0.88 * width * scale, 0.86 * height
        cells.append((x, y, wide, high))
        filled += [(x + a * wide, y + b * high, w * wide, h * high) for a, b, w, h, _ in boxes]
        colors += [color for *_, color in boxes]
    blocks(axes, cells, facecolor=PAPER, linewidth=0, zorder=2)
    blocks(axes, filled, facecolor=colors, linewidth=0, zorder=3)
    blocks(axes, cells, facecolor="none", edgecolor=SOFT, linewidth=0.6, zorder=4)


def each_of(grid):
    return [(row, column, boxes) for row, cells in enumerate(grid) for column, boxes in enumerate(cells)]


def draw_heads(axes, names, left, bottom, width, scale=1.0, bold=()):
    """Above the columns; upright where one is wider than its column."""
    for column, name in enumerate(names):
        style = {"fontweight": "bold"} if column in bold else {"color": SOFT} if bold else {}
        place = {"ha": "center", "va": "bottom", "fontsize": SMALL, "rotation": 90 * is_wide(name, width)}
        axes.text(left + scale * (column + 0.5) * width, bottom, name, **place | style)


def heads_height(names, width):
    return max([0.16, *(inches_of(name) + 0.06 for name in names if is_wide(name, width))])


def is_wide(name, width):
    return inches_of(name) > 0.9 * width


def moves(trace, ranks, since, until):
    """(source, destination) of all that arrived from one moment to another, in pairs of different ``ranks``."""
    found = {}
    for event in trace.events:
        if event.transfer and event.name != "wait" and since < event.end <= until:
            for pair in pairs(event.transfer, event.name):
                if set(pair) <= set(ranks):
                    found[pair] = True
    return list(found)


def pairs(transfer, name):
    ranks, root = transfer.ranks, transfer.root
    if name == "message":
        return [tuple(ranks)]
    if name in FROM_ROOT:
        return [(root, rank) for rank in ranks if rank != root]
    if name in TO_ROOT:
        return [(rank, root) for rank in ranks if rank != root]
    return [(a, b) for a in ranks for b in ranks if a != b] if name in TO_ALL else []


def handles(grids):
    """For a legend: the owners that are seen."""
    colors = {color for grid in grids for _, _, boxes in each_of(grid) for *_, color in boxes}
    seen = [(rank, color) for rank, color in enumerate(RANKS) if color in colors]
    found = [Patch(facecolor=color, label=f"belongs to rank {rank}") for rank, color in seen]
    return found + ([Patch(facecolor=COPY, label=OWN_COPY)] if COPY in colors else [])
