"""An axis of bytes over time: lines across it, whose names stand at its right, and the peak."""

from matplotlib.ticker import MaxNLocator

from .canvas import apart, measure
from .palette import INK, RED
from .states import total
from .strips import GAP, inches_of
from .style import SMALL
from .words import BYTES, bytes_text

APART = 0.15  # inches from one name to the next


def bytes_axis(axes, most, name):
    axes.set_ylim(0, 1.1 * most)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    measure(axes.yaxis, most, BYTES, name)
    axes.spines["left"].set_visible(True)
    axes.tick_params(axis="y", length=3)


def levels_of(states):
    """Name -> bytes: the peak, and what is held at rest, if that is something."""
    rest = {"at rest": total(states.rest)} if total(states.rest) else {}
    return rest | {"peak": total(states.peak)}


def told(levels):
    """In words."""
    where = {"peak": "at the peak"}
    return ", ".join(f"{bytes_text(nbytes)} {where.get(name, name)}" for name, nbytes in levels.items())


def mark_peak(axes, when, nbytes):
    axes.plot([when], [nbytes], marker="v", color=RED, markersize=6, clip_on=False, zorder=6)


def draw_levels(axes, height, levels):
    """``levels``: name -> bytes. ``height`` of the axes, in inches."""
    inches = height / axes.get_ylim()[1]
    for name, place in zip(levels, apart([nbytes * inches for nbytes in levels.values()], APART)):
        color = RED if name == "peak" else INK
        look = {"color": color, "linewidth": 0.8, "linestyle": (0, (4, 3)), "zorder": 4}
        axes.axhline(levels[name], **look)
        words = f"{name} {bytes_text(levels[name])}"
        weight = "bold" if name == "peak" else "normal"
        where = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "va": "center"}
        axes.annotate(words, (1, place / inches), (4, 0), fontsize=SMALL, color=color, fontweight=weight, **where)


def room_for(levels):
    """Inches at the right of the axes that their names take."""
    return max(inches_of(f"{name} {bytes_text(nbytes)}", SMALL, "bold") for name, nbytes in levels.items()) + 2 * GAP
