"""Numbers beside one another: a bar for each name, or a bar of several parts."""

from matplotlib.patches import Patch

from ..rules import finite, flag, named, stated, takes
from .canvas import canvas, inside, legend_above, named_number, picture
from .palette import INK, LINE, MEMORY, PAPER, SERIES
from .style import SMALL
from .words import number_text, tell

THICK = 0.66  # a bar; from one to the next is 1


numbers = stated(
    "a dict, name -> number or name -> {part: number}",
    lambda values: named(stated("", lambda one: finite(one) or named(finite)(one)))(values),
)


@takes(values=numbers, unit=str, limit=named_number, log=flag)
@picture
def bars(values, unit, limit=None, log=False):
    """Draw a horizontal bar for each of ``values``: name -> number, or name -> {part: number}, laid end to end.

    unit:   what the numbers count, below the axis and in the printed line. Parts in % are shares: no bar has a total.
    limit:  (name, number): a dashed line, at which something changes.
    """
    parts = {name: value if isinstance(value, dict) else {"": value} for name, value in values.items()}
    totals = {name: sum(each.values()) for name, each in parts.items()}
    tell("; ".join(f"{name}: {in_words(parts[name])}" for name in parts) + f" [{unit}]")
    colors = colors_of(dict.fromkeys(part for each in parts.values() for part in each))
    shares = unit.startswith("%") and "" not in colors
    said = {name: in_words(parts[name]) if shares else number_text(total) for name, total in totals.items()}
    figure, axes = canvas(alt_text(said, unit, limit), 0.8 + 0.32 * len(parts) + 0.2 * bool(limit))
    for place, each in enumerate(parts.values()):
        draw_bar(axes, place, each, colors, log)
    largest = max(*totals.values(), limit[1] if limit else 0)
    for place, total in enumerate([] if shares else totals.values()):
        look = {
            "textcoords": "offset points",
            "va": "center_baseline",
            "bbox": {"facecolor": PAPER, "edgecolor": "none", "pad": 1},
        }
        axes.annotate(number_text(total), (max(total, 0), place), (5, 0), zorder=4, **look)
    label(axes, [*parts], unit, largest, limit, log)
    if shares:
        axes.set_xlim(right=1.01 * largest)
    if "" not in colors:
        legend_above(figure, [Patch(label=part, facecolor=color) for part, color in colors.items()])
    return figure


def colors_of(kinds):
    """Of each part; purposes of memory have their own."""
    if len(kinds) > len(SERIES):
        raise ValueError(f"bars: at most {len(SERIES)} parts are supported, got {len(kinds)}: {', '.join(kinds)}")
    return {part: MEMORY[part]["facecolor"] if part in MEMORY else color for part, color in zip(kinds, SERIES)}


def in_words(parts):
    if "" in parts:
        return number_text(parts[""])
    return " + ".join(f"{part} {number_text(number)}" for part, number in parts.items())


def alt_text(said, unit, limit):
    bars = ", ".join(f"{name} {numbers}" for name, numbers in said.items())
    return f"Bars of {unit}: {bars}" + (f"; a line at {limit[0]}, {number_text(limit[1])}" if limit else "") + "."


def draw_bar(axes, place, parts, colors, log):
    start = 0
    for part, number in parts.items():
        axes.barh(place, number, THICK, start, color=colors[part], edgecolor=PAPER, linewidth=0.5)
        box = (start, place - THICK / 2, number, THICK)
        if part and number > 0 and not log:
            inside(axes, box, number_text(number), colors[part])
        start += number


def label(axes, names, unit, largest, limit, log):
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelsize=9)
    axes.set_xlabel(unit)
    axes.grid(axis="x", color=LINE)
    axes.spines["left"].set_color(LINE)
    if log:
        axes.set_xscale("log")
    axes.set_xlim(right=largest * (3 if log else 1.15) or 1)
    if limit:
        axes.axvline(limit[1], color=INK, linewidth=0.9, linestyle="--")
        place = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
        axes.annotate(limit[0], (limit[1], 1), (0, 2), ha="center", va="bottom", fontsize=SMALL, **place)
