"""Which numbers a format has: a mark for each, on one line per format."""

from ..rules import each_of, finite, named, validate
from .canvas import canvas, picture
from .formatting import number_text, tell
from .palette import BLUE

HALF = 0.35  # of a mark, from one line to the next is 1


@validate(numbers=named(each_of(finite)), x=str)
@picture
def number_line(numbers, x="number"):
    """Draw ``numbers``, name of a format -> the numbers that it has."""
    said = "; ".join(
        f"{name}: {len(there)} numbers from {number_text(min(there))} to {number_text(max(there))}"
        for name, there in numbers.items()
    )
    tell(said)
    figure, axes = canvas(f"A mark for each number: {said}.", 0.7 + 0.32 * len(numbers))
    for row, there in enumerate(numbers.values()):
        axes.vlines(there, row - HALF, row + HALF, color=BLUE, linewidth=1)
    axes.set_yticks(range(len(numbers)), [*numbers])
    axes.set_ylim(len(numbers) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(x)
    return figure
