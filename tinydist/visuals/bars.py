"""Bar charts, plain or stacked; and waterfall charts, each bar starting where the previous one ended."""

from matplotlib.patches import Patch

from ..rules import finite, flag, named, positive, stated, validate
from .canvas import canvas, inside, legend_above, named_number, picture
from .figure import SMALL
from .formatting import SECONDS, number_text, tell, unit_for
from .palette import DARK, GREY, INK, LINE, MEMORY, PAPER, RED, SERIES

THICK, HIGH = 0.66, 0.7  # a bar, one of a waterfall; from one to the next is 1


numbers = stated(
    "a dict, name -> number or name -> {part: number}",
    lambda values: named(stated("", lambda one: finite(one) or named(finite)(one)))(values),
)


marked = stated(
    "(name, {bar: number})", lambda marks: len(marks) == 2 and isinstance(marks[0], str) and numbers(marks[1])
)


@validate(values=numbers, unit=str, limit=named_number, log=flag, marks=marked)
@picture
def bars(values, unit, limit=None, log=False, marks=None):
    """Draw a horizontal bar for each of ``values``: name -> number, or name -> {part: number}, laid end to end.

    unit:   what the numbers count, below the axis and in the printed line. Parts in % are shares: no bar has a total.
    limit:  (name, number): a dashed line, at which something changes.
    marks:  (name, {bar: number}): a black mark on a bar, where it should end, and its number beside the bar's.
    """
    marked, places = marks or ("", {})
    parts = {name: value if isinstance(value, dict) else {"": value} for name, value in values.items()}
    totals = {name: sum(each.values()) for name, each in parts.items()}
    tell("; ".join(f"{name}: {in_words(parts[name])}" for name in parts) + f" [{unit}]")
    colors = colors_of(dict.fromkeys(part for each in parts.values() for part in each))
    shares = unit.startswith("%") and "" not in colors
    said = {name: in_words(parts[name]) if shares else number_text(total) for name, total in totals.items()}
    said |= {name: f"{said[name]}, {marked} {number_text(place)}" for name, place in places.items()}
    figure, axes = canvas(alt_text(said, unit, limit), 0.8 + 0.32 * len(parts) + 0.2 * bool(limit))
    for place, (name, each) in enumerate(parts.items()):
        draw_bar(axes, place, each, colors, log)
        if name in places:
            axes.plot([places[name]] * 2, [place - THICK / 2, place + THICK / 2], color=INK, linewidth=2)
    largest = max(*totals.values(), *places.values(), limit[1] if limit else 0)
    for place, (name, total) in enumerate([] if shares else totals.items()):
        style = {
            "textcoords": "offset points",
            "va": "center_baseline",
            "bbox": {"facecolor": PAPER, "edgecolor": "none", "pad": 1},
        }
        end = max(total, places.get(name, 0), 0)
        axes.annotate(said[name], (end, place), (5, 0), zorder=4, **style)
    label(axes, [*parts], unit, largest, limit, log)
    if places:
        axes.set_xlim(right=1.4 * largest)
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


@validate(groups=stated("a dict, group -> {part: a number > 0}", named(named(positive))), unit=str, total=named_number)
@picture
def waterfall(groups, unit, total=None, rest="not explained"):
    """Draw ``groups``, name -> {part: number}: their parts one after another, and the sum where each group ends.

    unit:   what the numbers count; "seconds" are scaled.
    total:  (name, number): what all of them should come to.
    rest:   what is written at a difference to the total.
    """
    parts = list(waterfall_parts(groups, total, rest))
    if unit == "seconds":
        size, unit = unit_for(max(end for _, _, end, _ in parts), SECONDS)
        parts = [(name, start / size, end / size, color) for name, start, end, color in parts]
    sums = [f"{name} {number_text(end)} {unit}" for name, start, end, color in parts if color == DARK]
    tell("; ".join(sums))
    figure, axes = canvas(
        f"A sum of {len(parts) - len(sums)} parts: {', '.join(sums)}.", height=0.5 + 0.25 * len(parts)
    )
    for row, (_, start, end, color) in enumerate(parts):
        axes.barh(row, end - start, HIGH, start, color=color)
        beside = {"va": "center", "textcoords": "offset points", "fontweight": "bold" if color == DARK else "normal"}
        axes.annotate(number_text(end - start), (end, row), (4, 0), **beside)
        if row + 1 < len(parts):
            axes.plot([end, end], [row + HIGH / 2, row + 1 - HIGH / 2], color=GREY, linewidth=0.8)
    axes.set_yticks(range(len(parts)), [name for name, *_ in parts])
    for tick, (*_, color) in zip(axes.get_yticklabels(), parts):
        tick.set_fontweight("bold" if color == DARK else "normal")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(parts) - 0.5, -0.5)
    axes.set_xlim(0, 1.1 * max(end for _, _, end, _ in parts))
    axes.set_xlabel(unit)
    return figure


def waterfall_parts(groups, total, rest="not explained"):
    """(name, start, end, color) of each bar, from the first to the last."""
    end = 0
    for (group, parts), color in zip(groups.items(), SERIES):
        for name, number in parts.items():
            yield name, end, end + number, color
            end += number
        yield group, 0, end, DARK
    if total:
        if total[1] > end:
            yield rest, end, total[1], RED
        yield total[0], 0, total[1], DARK
