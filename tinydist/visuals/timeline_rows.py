"""Timeline rows: each rank's compute, with its transfers in lanes below."""

from matplotlib.patches import Patch

from .block_names import IN_WORDS
from .palette import BLOCKS, RED
from .time_axis import MARGIN

HIGH, LANE, BETWEEN, BRACKET = 0.25, 0.19, 0.13, 0.25  # inches
TALLEST, LANES = 4.6, 3  # inches of all rows together; lanes: more are no higher
WORDS = {
    "forward": "F: forward",
    "recompute": "R: forward once more",
    "backward": "B: backward",
    "weights": "W: backward, weights",
}


class Rows:
    """``rows``: of scene.py. ``marks``: number of a row -> [(start, end, words)], brackets above it. ``around``: inches
    around the name of a transfer."""

    def __init__(self, rows, marks=None, lanes=True, styles=BLOCKS, around=MARGIN):
        self.rows, self.marks, self.styles, self.around = rows, marks or {}, styles, around
        self.lanes = [row.lanes if lanes else [] for row in rows]
        self.under = LANE * min(max(map(len, self.lanes)), LANES)
        tall = len(rows) * (HIGH + self.under + BETWEEN)
        self.scale = min(1.0, TALLEST / tall)
        self.height = self.scale * tall + BRACKET * len(self.marks)

    def draw(self, sheet, axes, names, top=0.0):
        """From ``top`` down, in inches."""
        for number, (row, name) in enumerate(zip(self.rows, names, strict=True)):
            if number in self.marks:
                top += BRACKET
                for start, end, words in self.marks[number]:
                    sheet.bracket(axes, start, end, top - 0.03, words, RED)
            self._draw_row(sheet, axes, top, row, self.lanes[number])
            sheet.row_name(axes, top + self.scale * HIGH / 2, name)
            top += self.scale * (HIGH + self.under + BETWEEN)

    def _draw_row(self, sheet, axes, top, row, lanes):
        high = self.scale * HIGH
        for kind, style in self.styles.items():
            chosen = [block for block in row.compute + row.waiting if block.kind == kind]
            sheet.bars(axes, chosen, top, high, style)
        under = self.scale * (self.under if len(lanes) > LANES else LANE * max(1, len(lanes)))
        for number, lane in enumerate(lanes):
            place = top + high + 0.02 + number * under / len(lanes)
            for kind in dict.fromkeys(block.kind for block in lane):
                chosen = [block for block in lane if block.kind == kind]
                sheet.bars(axes, chosen, place, under / len(lanes) - 0.02, self.styles[kind], self.around)


def words_of(axis, sent):
    """What is sent along an axis, or in all."""
    letters = [long for short, long in IN_WORDS.items() if any(block.name.startswith(short) for block in sent)]
    return ": ".join(filter(None, [axis, ", ".join(letters) or "communication"]))


def handles(rows, lanes=True, styles=BLOCKS):
    """Legend handles: the style of each kind of block that is drawn, and what its letters stand for."""
    sent = [block for row in rows for block in row.communication] if lanes else []
    kinds = {block.kind for row in rows for block in row.compute + row.waiting} | {block.kind for block in sent}
    words = WORDS | {kind: words_of(kind, [b for b in sent if b.kind == kind]) for kind in kinds - {*BLOCKS}}
    words["communication"] = words_of("", [block for block in sent if block.kind == "communication"])
    alike = {}
    for kind in [kind for kind in styles if kind in kinds]:
        alike.setdefault(tuple(styles[kind].items()), []).append(words.get(kind, kind))
    return [Patch(label=", ".join(names), **dict(style)) for style, names in alike.items()]
