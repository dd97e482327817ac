"""Line plots: one line per name, over common x values."""

from math import isfinite

from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter, MaxNLocator

from ..rules import each_of, finite, flag, named, number, stated, validate
from .canvas import apart, canvas, named_number, picture
from .figure import SMALL
from .formatting import BYTES, number_text, tell, unit_for
from .palette import INK, SERIES

LINES = list(zip(SERIES, "os^Dv", ("-", "--", "-.", (0, (1, 1)), (0, (6, 2)))))
MOST_TICKS, MOST_MARKERS = 8, 25
MOST_DOUBLED = 100_000
APART = 13  # pixels from one name to the next


named_points = stated(
    "(name, points)", lambda v: isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], str) and each_of(finite)(v[1])
)
powers = stated("True, False or 'x'", lambda value: flag(value) or value == "x")


@validate(
    points=each_of(finite),
    values=named(each_of(number)),
    x=str,
    y=str,
    limit=named_number,
    log=powers,
    zero=flag,
    spread=flag,
    jumps=flag,
    bottom=finite,
    crosses=named_points,
)
@picture
def curves(
    points, values, x, y, limit=None, log=False, zero=False, spread=False, jumps=False, bottom=None, crosses=None
):
    """Draw ``values``, name -> a number for each of ``points``; x and y say what the axes count. NaN is no point.

    limit:  (name, number): a horizontal line, at which something changes.
    log:    both axes have powers, or "x" alone. Of bytes: kB, MB, GB.
    zero:   y begins at 0.
    spread: the printed line has the least and the greatest number of each line, and not its first and last.
    jumps:  a number holds up to the next point, where the line jumps, and does not climb on the way.
    bottom: y begins at this number, and two strokes mark the axis as cut.
    crosses: (name, some of ``points``): black crosses there on the first line.
    """
    for name, numbers in values.items():
        if len(numbers) != len(points):
            raise ValueError(f"curves: {len(points)} points need one value each, but {name!r} has {len(numbers)}")
    if len(values) > len(LINES):
        raise ValueError(f"curves: at most {len(LINES)} lines are supported, got {len(values)}")
    in_words = {name: between(numbers) if spread else grows(numbers) for name, numbers in values.items()}
    tell("; ".join(f"{name}: {words}" for name, words in in_words.items()) + f" [{y}]")
    lines = ", ".join(f"{name} {words if spread else f'from {words}'}" for name, words in in_words.items())
    figure, axes = canvas(f"Lines of {y} over {x} from {grows(points)}: {lines}.")
    if log:
        use_powers(axes, points, log, in_bytes=x == "bytes")
    for (name, numbers), (color, marker, line) in zip(values.items(), LINES):
        marks = {"marker": marker, "markevery": -(-len(points) // MOST_MARKERS)}
        marks["drawstyle"] = "steps-post" if jumps else "default"
        axes.plot(points, numbers, linestyle=line, color=color, label=name, **marks)
    if crosses:
        first = next(iter(values.values()))
        at = [(point, number) for point, number in zip(points, first) if point in crosses[1]]
        [drawn] = axes.plot(*zip(*at), "x", color=INK, markersize=8, markeredgewidth=1.8, label=crosses[0], zorder=5)
        axes.legend(handles=[drawn], loc="upper center", fontsize=SMALL)
    if len(points) <= MOST_TICKS:
        axes.set_xticks(points)
    elif not log and all(point == int(point) for point in points):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(x=0.03)
    if limit:
        axes.axhline(limit[1], color=INK, linewidth=0.9, linestyle=(0, (4, 2)), zorder=0)
    if zero:
        axes.set_ylim(bottom=0)
    if bottom is not None:
        axes.set_ylim(bottom=bottom)
        mark_cut(axes)
    axes.set(xlabel=x, ylabel=y)
    axes.grid(axis="y")
    if points[-1] < points[0]:
        axes.invert_xaxis()
    line = [(limit[0], axes.get_xlim()[1], limit[1], INK)] if limit else []
    name_lines(axes, [*ends_of(points, values), *line], points[-1])
    return figure


def mark_cut(axes):
    """Two strokes across the foot of the y-axis."""
    for foot in (0.02, 0.045):
        stroke = {"transform": axes.transAxes, "clip_on": False, "color": INK, "linewidth": 0.9}
        axes.add_line(Line2D([-0.012, 0.012], [foot, foot + 0.025], **stroke))


def ends_of(points, values):
    """(name, x, y, color) of the last number of each line; those that end before the others say so there.

    A point alone is no line that ends: it has its name and nothing else.
    """
    for (name, numbers), color in zip(values.items(), SERIES):
        there = [place for place, number in enumerate(numbers) if isfinite(number)]
        if len(there) > 1 and there[-1] + 1 < len(numbers):
            name = f"{name}: {numbers[there[-1] + 1]} from {number_text(points[there[-1] + 1])} on"
        if there:
            yield name, points[there[-1]], numbers[there[-1]], color


def grows(numbers):
    return f"{number_text(numbers[0])} to {number_text(numbers[-1])}"


def between(numbers):
    numbers = [number for number in numbers if number == number] or numbers
    if len(numbers) == 1:
        return number_text(numbers[0])
    return f"between {number_text(min(numbers))} and {number_text(max(numbers))}"


def use_powers(axes, points, log, in_bytes):
    doublings = points[-1] <= MOST_DOUBLED * points[0]  # else powers of 10, written as such
    axes.set_xscale("log", base=2 if doublings and not in_bytes else 10)
    if log != "x":
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda number, _: number_text(number))
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.4)))  # 2, 3, 5 within a power of 10
    if in_bytes:
        axes.xaxis.set_major_formatter(lambda number, _: rounded_bytes(number))
    elif doublings:
        axes.xaxis.set_major_formatter(lambda number, _: f"{number:g}")


def rounded_bytes(number):
    size, unit = unit_for(number, BYTES)
    return f"{round(number / size, 2):g} {unit}"


def name_lines(axes, ends, last):
    """Write names, (name, x, y, color) of each line's end: of those that end before ``last`` where they do so, of the
    others at the right of the picture, where they do not overlap."""
    axes.figure.draw_without_rendering()
    bottom, top = axes.bbox.y0, axes.bbox.y1
    to_the_right = [end for end in ends if not ends_early(axes, end[1], last)]
    places = [min(max(axes.transData.transform(end[1:3])[1], bottom), top) for end in to_the_right]
    heights = apart(places, APART, top)
    for name, x, y, color in ends:
        style = {"va": "center", "annotation_clip": False, "fontsize": SMALL}
        if ends_early(axes, x, last):
            axes.annotate(name, (x, y), (7, 5), textcoords="offset points", **style)
            continue
        to = (1.03, (heights.pop(0) - bottom) / (top - bottom))
        leader = {"arrowstyle": "-", "color": color, "linewidth": 0.8, "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)}
        axes.annotate(name, (x, y), to, textcoords="axes fraction", arrowprops=leader, **style)


def ends_early(axes, x, last):
    return axes.transData.transform((x, 1))[0] < axes.transData.transform((last, 1))[0] - 1
