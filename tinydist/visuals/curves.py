"""Numbers that grow: a line for each name, over the same points."""

from ..rules import each_of, finite, flag, named, number, takes
from .canvas import canvas, legend_beside, named_number, picture
from .palette import BLUE, GREEN, ORANGE, PURPLE, RED
from .words import number_text

LOOKS = list(zip((BLUE, ORANGE, GREEN, PURPLE, RED), "os^Dv", ("-", "--", "-.", ":", "-")))
MOST_TICKS, MOST_MARKERS = 8, 25
MOST_DOUBLED = 100_000


@takes(points=each_of(finite), values=named(each_of(number)), x=str, y=str, limit=named_number, log=flag)
@picture
def curves(points, values, x, y, limit=None, log=False):
    """Draw ``values``, name -> a number for each of ``points``; x and y say what the axes count. NaN is no point.

    limit:  (name, number): a horizontal line, at which something changes.
    log:    both axes have powers.
    """
    for name, numbers in values.items():
        if len(numbers) != len(points):
            raise ValueError(f"curves: {len(points)} points need as many numbers, but {name!r} has {len(numbers)}")
    if len(values) > len(LOOKS):
        raise ValueError(f"curves: it has looks for {len(LOOKS)} lines, got {len(values)}")
    grow = (f"{name}: {number_text(numbers[0])} to {number_text(numbers[-1])}" for name, numbers in values.items())
    print("; ".join(grow), f"[{y}]")
    figure, axes = canvas("")
    if log:
        doublings = points[-1] <= MOST_DOUBLED * points[0]  # else powers of 10, written as such
        axes.set_xscale("log", base=2 if doublings else 10)
        axes.set_yscale("log")
        if doublings:
            axes.xaxis.set_major_formatter(lambda number, _: f"{number:g}")
    for (name, numbers), (color, marker, line) in zip(values.items(), LOOKS):
        marks = {"marker": marker, "markersize": 4, "markevery": -(-len(points) // MOST_MARKERS)}
        axes.plot(points, numbers, line, color=color, label=name, **marks)
    legend_beside(axes, axes.lines)
    if len(points) <= MOST_TICKS:
        axes.set_xticks(points)
    if limit:
        axes.axhline(limit[1], color="black", linewidth=0.9, linestyle=(0, (4, 2)), zorder=0)
        axes.annotate(limit[0], (points[0], limit[1]), (0, 3), textcoords="offset points", va="bottom", fontsize=8)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure
