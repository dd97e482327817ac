"""A fused softmax with three bugs, none of which raises an error."""

import math

import torch
import torch.nn.functional as F

from tinydist.lab.author import Own, Target, Values, Wrong, alone, exercise, mistake
from tinydist.tracing.record import Operator

from .chapter import INSTEAD, SOLVED

ROWS = 3  # at most, in all cases


class Tiles(Target):
    """No exp is of more than a tile of each row."""

    name, operators = "tiles", True

    def shown(self, trial):
        operators = [each for each in trial.run.record.programs[0] if isinstance(each, Operator)]
        return max((each.nbytes for each in operators if each.name.startswith("exp")), default=0)

    def judge(self, exercise, trial, right):
        mine, its = self.seen(trial), self.seen(right)
        if mine > ROWS * its:
            raise Wrong(
                f"an exp reads and writes {mine:,} bytes, where one of a tile moves {its:,}: it is as long as a row. "
                "Mend the two passes over tiles: a kernel has no room for more"
            )


def case(about, rows, columns, tile, shift=0.0, size=1.0, rising=False, apart=0.0):
    def arguments():
        x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(columns), dtype=torch.float64)
        x = x * size + shift + apart * torch.arange(rows)[:, None]
        return (x.sort(1).values if rising else x), tile

    return alone(arguments, f"[{rows}, {columns}], tiles of {tile}: {about}")


def test_cases():
    yield case("one tile", 2, 8, 8)
    yield case("one tile, not full", 2, 5, 8)
    yield case("two tiles", 2, 16, 8)
    yield case("the last tile is not full", 3, 11, 4)
    yield case("numbers near -60", 2, 11, 4, shift=-60.0)
    yield case("numbers near -1,000: exp of less than -745 is 0", 2, 12, 4, shift=-1000.0)
    yield case("each tile has a larger maximum", 2, 12, 4, size=3.0, rising=True)
    yield case("numbers up to 2,000: exp of more than 709 is inf", 2, 12, 4, size=1000.0)
    yield case("rows that are 1,000 apart: each has its own maximum", 3, 12, 4, apart=1000.0)
    yield case("tiles of one number", 2, 3, 1)
    yield case("long rows", 2, 1024, 16)


@exercise(
    title="Find three bugs in a fused softmax",
    minutes=15,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own passes", INSTEAD, SOLVED, torchs="softmax"),
        Values("the softmax of each row; 2 or 3 rows of 3 to 1,024 numbers"),
        Tiles("tile after tile: no exp is as long as a row of 1,024"),
    ],
    mistakes=[
        mistake(
            "A tile is filled up with zeros, and exp(0 - maximum) goes into the total: fill up with -inf",
            "value=-math.inf",
            "value=0.0",
            given=True,
        ),
        mistake(
            "When a tile brings a larger maximum, the total so far counts from the old one: rescale it",
            "total * math.exp(largest - new)",
            "total",
            given=True,
        ),
        mistake(
            "In the second pass each tile subtracts its own maximum, where the total counts from the row's",
            "(part - largest).exp() / total",
            "(part - part.max()).exp() / total",
            given=True,
        ),
        mistake(
            "Nothing is subtracted: exp of large numbers is inf", "new = max(largest, part.max().item())", "new = 0.0"
        ),
        mistake(
            "The maximum begins below all numbers, not at 0",
            "largest, total = -math.inf, 0.0",
            "largest, total = 0.0, 0.0",
        ),
    ],
    hints=[
        "Compare with torch.softmax on one full tile, on one that is not full, and on two tiles. Which are wrong?",
        "The last tile has fewer numbers than the loops run over. What do the others add to the total?",
        "The total is a sum of exp(number - maximum), with one maximum for all of a row.",
    ],
    why="Padding with zeros is right for a sum and wrong for a maximum or an exponential: each reduction has its own "
    "neutral number, and a kernel that fuses two needs both. In Triton it is the argument `other` of a masked load.",
)
def mended_softmax(x, tile):
    """Mend this softmax over the rows of ``x`` [R, C], float64, in tiles of ``tile`` columns: it has three bugs.

    Like a fused kernel it reads each row twice, keeps nothing of a row's length but the result, and computes on whole
    tiles: the last one is filled up. All numbers are finite. Return a new tensor [R, C].
    """
    rows, columns = x.shape
    y = torch.empty_like(x)

    def load(row, begin):
        return F.pad(x[row, begin : begin + tile], (0, max(0, begin + tile - columns)), value=-math.inf)

    for row in range(rows):
        largest, total = -math.inf, 0.0
        for begin in range(0, columns, tile):
            part = load(row, begin)
            new = max(largest, part.max().item())
            total = total * math.exp(largest - new) + (part - new).exp().sum().item()
            largest = new
        for begin in range(0, columns, tile):
            part = load(row, begin)
            y[row, begin : begin + tile] = ((part - largest).exp() / total)[: columns - begin]
    return y
