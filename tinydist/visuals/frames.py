"""The frames of a film: which moments they show, and where they stand without touching one another."""

from itertools import pairwise

from .cells import HEAD, draw_cells, draw_heads
from .palette import GREY
from .style import HEADING

LEGEND = 0.28  # inches, above the titles
NARROWEST, WIDEST, HIGH, APART = 0.1, 0.2, 0.36, 0.12  # inches: of a cell; between two frames


class Frames:
    """``moments``: names of marks or blocks, or None for all blocks, or as many as there is room for."""

    def __init__(self, scene, cells, purpose, moments, width):
        self.cells, self.width = cells, width
        chosen = blocks_in(scene) if moments is None else [moment_in(scene, name) for name in moments]
        self.frames = [(time - scene.since, name, cells.at(time, purpose)) for time, name in sorted(chosen)]
        if moments is None:
            self._leave_out()
        count, columns = len(self.frames), len(cells.names)
        self.cell = min(WIDEST, max(NARROWEST, (width / count - APART) / columns))
        self.wide = self.cell * columns

    def _leave_out(self):
        """Frames that show the same once more, and then each second, third ... until there is room."""
        room = max(1, int(self.width / (NARROWEST * len(self.cells.names) + APART)))
        if len(self.frames) > room:
            same = [number for number, (a, b) in enumerate(pairwise(self.frames), 1) if a[2] == b[2]]
            self.frames = [frame for number, frame in enumerate(self.frames) if number not in same]
        self.frames = self.frames[:: -(-len(self.frames) // room)]

    def draw(self, sheet, axes, top, stem):
        scale = sheet.as_seconds(1.0)
        bottom = top + HIGH * len(self.cells.ranks)
        for place, (time, name, grid) in zip(self._places(sheet), self.frames):
            left, running = scale * (place - self.wide / 2), name[1:]
            bold = [column for column, each in enumerate(self.cells.names) if each == running]
            axes.text(scale * place, LEGEND, name, ha="center", va="top", fontsize=HEADING, fontweight="bold")
            draw_heads(axes, self.cells.names, left, top - HEAD, self.cell, scale, bold)
            draw_cells(axes, grid, left, top, self.cell, HIGH, scale)
            ends = [scale * place, scale * place, time, time], [bottom + 0.02, bottom + 0.08, bottom + stem - 0.06, bottom + stem]
            axes.plot(*ends, color=GREY, linewidth=0.8, clip_on=False)
        return bottom + stem

    def _places(self, sheet):
        """Their middles in inches, as near to their moments as they can stand beside one another."""
        step, half = self.wide + APART, self.wide / 2
        places = []
        for time, _, _ in self.frames:
            places.append(max(sheet.as_inches(time), places[-1] + step if places else half))
        last = self.width - half
        for number in range(len(places) - 1, -1, -1):
            places[number] = min(places[number], last)
            last = places[number] - step
        return places


def blocks_in(scene):
    """(time, name) of each named block: while its last operator runs. Of a block in pieces, the last piece."""
    named = [block for block in scene.rows[0].compute if block.name]
    last = [block for block, following in zip(named, [*named[1:], None]) if not following or following.name != block.name]
    return [(while_it_ends(scene, block), block.name) for block in last]


def moment_in(scene, name):
    block = next((block for block in scene.rows[0].compute if block.name == name), None)
    return (while_it_ends(scene, block), name) if block else (min(scene.times(name)), name)


def while_it_ends(scene, block):
    """In the middle of its last operator, where no memory comes or goes."""
    operators = scene.trace.of(scene.ranks[0], "compute")
    last = max((each for each in operators if each.start < block.end), key=lambda each: each.start)
    return (last.start + min(last.end, block.end)) / 2
