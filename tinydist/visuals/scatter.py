"""Scatter plots: two numbers of each choice as a point, with its name."""

from ..rules import finite, named, stated, validate
from .canvas import canvas, named_number, picture
from .figure import SMALL
from .formatting import number_text, tell
from .palette import BLUE, GREY, INK

two_numbers = stated(
    "(x, y), finite", lambda pair: isinstance(pair, tuple) and len(pair) == 2 and all(map(finite, pair))
)
RIGHT, ABOVE = 7, 6  # points from a point to its name, and from a line to what is written above it
ROOM = 0.3  # of the x-axis, for the name of the point at the right


@validate(points=named(two_numbers), x=str, y=str, limit=named_number)
@picture
def scatter(points, x, y, limit=None):
    """Draw ``points``, name -> (x, y); the arguments x and y say what the axes count. The x-axis begins at 0.

    limit:  (name, number): a horizontal line. Names of points on it stand above it.
    """
    said = "; ".join(f"{name}: {number_text(a)}, {number_text(b)}" for name, (a, b) in points.items())
    tell(f"{said} [{x}, {y}]")
    figure, axes = canvas(f"Points of {x} and {y}: {said}.", height=3)
    heights = [b for _, b in points.values()]
    if limit:
        axes.axhline(limit[1], color=GREY, linestyle="--", zorder=0)
        above = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
        axes.annotate(limit[0], (0, limit[1]), (RIGHT, ABOVE), color=INK, fontsize=SMALL, **above)
        heights.append(limit[1])
    for name, place in points.items():
        axes.plot(*place, "o", color=BLUE)
        offset = RIGHT, ABOVE if limit and place[1] == limit[1] else 0
        axes.annotate(name, place, offset, textcoords="offset points", color=INK, fontsize=SMALL, va="center")
    margin = 0.12 * (max(heights) - min(heights)) or 1
    axes.set_xlim(0, (1 + ROOM) * max(a for a, _ in points.values()))
    axes.set_ylim(min(heights) - margin, max(heights) + margin)
    axes.set(xlabel=x, ylabel=y)
    return figure
