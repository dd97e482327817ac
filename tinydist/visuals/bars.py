"""Numbers beside one another: a bar for each name, or a bar of several parts."""

from matplotlib.patches import Patch

from ..rules import finite, flag, named, stated, takes
from .canvas import canvas, legend_beside, named_number, picture
from .palette import BLUE, GREEN, MEMORY, ORANGE, PURPLE, SKY
from .words import number_text

LOOKS = [
    {"facecolor": color, "edgecolor": "white", "hatch": hatch}
    for color, hatch in zip((BLUE, ORANGE, SKY, GREEN, PURPLE), ("", "////", "....", "----", "xxxx"))
]
PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.3}


numbers = stated(
    "a dict, name -> number or name -> {part: number}",
    lambda values: named(stated("", lambda one: finite(one) or named(finite)(one)))(values),
)


@takes(values=numbers, unit=str, limit=named_number, log=flag)
@picture
def bars(values, unit, limit=None, log=False):
    """Draw a horizontal bar for each of ``values``: name -> number, or name -> {part: number}, laid end to end.

    unit:   what the numbers count, below the axis and in the printed line.
    limit:  (name, number): a dashed line, at which something changes.
    """
    parts = {name: value if isinstance(value, dict) else {"": value} for name, value in values.items()}
    totals = {name: sum(each.values()) for name, each in parts.items()}
    print("; ".join(f"{name}: {in_words(parts[name])}" for name in parts), f"[{unit}]")
    kinds = list(dict.fromkeys(part for each in parts.values() for part in each))
    if len(kinds) > len(LOOKS):
        raise ValueError(f"bars: it has looks for {len(LOOKS)} parts, got {len(kinds)}: {', '.join(kinds)}")
    looks = dict(zip(kinds, LOOKS))
    looks |= {purpose: MEMORY[purpose] for purpose in MEMORY.keys() & looks.keys()}
    figure, axes = canvas("", height=0.75 + 0.3 * len(parts))
    for name, each in parts.items():
        start = 0
        for part, number in each.items():
            axes.barh(name, number, 0.7, start, linewidth=0.4, **looks[part])
            start += number
        look = {"textcoords": "offset points", "va": "center", "bbox": PAPER}
        axes.annotate(number_text(totals[name]), (start, name), (4, 0), **look)
    label(axes, unit, max(totals.values()), limit, log)
    if "" not in looks:
        legend_beside(axes, [Patch(label=part, **look) for part, look in looks.items()])
    return figure


def in_words(parts):
    if "" in parts:
        return number_text(parts[""])
    return " + ".join(f"{part} {number_text(number)}" for part, number in parts.items())


def label(axes, unit, largest, limit, log):
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(unit)
    if log:
        axes.set_xscale("log")
    largest = max(largest, limit[1]) if limit else largest
    axes.set_xlim(right=largest * (3 if log else 1.15) or 1)
    if limit:
        axes.axvline(limit[1], color="black", linewidth=0.9, linestyle="--")
        place = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
        axes.annotate(limit[0], (limit[1], 1), (0, 2), ha="center", va="bottom", fontsize=8, **place)
