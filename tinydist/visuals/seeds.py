"""What several seeds of each choice gave: a dot for each, from the least to the greatest, and a mark at the mean."""

import statistics

from ..rules import each_of, finite, named, validate
from .canvas import canvas, picture
from .formatting import number_text, tell
from .palette import BLUE, INK, LINE

HALF = 0.28  # of a mean's mark, from one row to the next is 1


@validate(values=named(each_of(finite)), x=str, band=str)
@picture
def seeds(values, x, band=None):
    """Draw ``values``, name -> a number for each seed, on one row a name; x says what they count.

    band: the name of a row, whose range is shaded on all rows: what reaches into it may be no different.
    """
    if band is not None and band not in values:
        raise ValueError(f"seeds: band must be one of {', '.join(values)}, got {band!r}")
    said = "; ".join(
        f"{name}: {number_text(statistics.mean(row))}, {number_text(min(row))} to {number_text(max(row))}"
        for name, row in values.items()
    )
    tell(f"{said} [{x}]")
    figure, axes = canvas(f"A dot for each seed, means and ranges of {x}: {said}.", 0.8 + 0.32 * len(values))
    if band is not None:
        axes.axvspan(min(values[band]), max(values[band]), color=LINE, alpha=0.5, linewidth=0, zorder=0)
    for place, row in enumerate(values.values()):
        axes.plot([min(row), max(row)], [place] * 2, color=BLUE, linewidth=1.5)
        axes.plot(row, [place] * len(row), "o", color=BLUE, markersize=4)
        axes.plot([statistics.mean(row)] * 2, [place - HALF, place + HALF], color=INK, linewidth=2)
    axes.set_yticks(range(len(values)), [*values])
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(x)
    return figure
