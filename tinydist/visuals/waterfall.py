"""A sum, part by part: each bar begins where the last one ended, and what is missing to the total is marked."""

from ..rules import named, positive, stated, takes
from .canvas import canvas, named_number, picture
from .palette import DARK, GREY, RED, SERIES
from .words import SECONDS, number_text, tell, unit_for

HIGH = 0.7  # of a bar, in rows


@takes(groups=stated("a dict, group -> {part: a number > 0}", named(named(positive))), unit=str, total=named_number)
@picture
def waterfall(groups, unit, total=None):
    """Draw ``groups``, name -> {part: number}: their parts one after another, and the sum where each group ends.

    unit:   what the numbers count; "seconds" are scaled.
    total:  (name, number): what all of them should come to.
    """
    bars = list(steps(groups, total))
    if unit == "seconds":
        size, unit = unit_for(max(end for _, _, end, _ in bars), SECONDS)
        bars = [(name, start / size, end / size, color) for name, start, end, color in bars]
    sums = [f"{name} {number_text(end)} {unit}" for name, start, end, color in bars if color == DARK]
    tell("; ".join(sums))
    figure, axes = canvas(f"A sum of {len(bars) - len(sums)} parts: {', '.join(sums)}.", height=0.5 + 0.25 * len(bars))
    for row, (_, start, end, color) in enumerate(bars):
        axes.barh(row, end - start, HIGH, start, color=color)
        beside = {"va": "center", "textcoords": "offset points", "fontweight": "bold" if color == DARK else "normal"}
        axes.annotate(number_text(end - start), (end, row), (4, 0), **beside)
        if row + 1 < len(bars):
            axes.plot([end, end], [row + HIGH / 2, row + 1 - HIGH / 2], color=GREY, linewidth=0.8)
    axes.set_yticks(range(len(bars)), [name for name, *_ in bars])
    for label, (*_, color) in zip(axes.get_yticklabels(), bars):
        label.set_fontweight("bold" if color == DARK else "normal")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set_xlim(0, 1.1 * max(end for _, _, end, _ in bars))
    axes.set_xlabel(unit)
    return figure


def steps(groups, total):
    """(name, start, end, color) of each bar, from the first to the last."""
    end = 0
    for (group, parts), color in zip(groups.items(), SERIES):
        for name, number in parts.items():
            yield name, end, end + number, color
            end += number
        yield group, 0, end, DARK
    if total:
        if total[1] > end:
            yield "not explained", end, total[1], RED
        yield total[0], 0, total[1], DARK
