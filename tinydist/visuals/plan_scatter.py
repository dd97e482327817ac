"""Parallel plans as points: memory over MFU, one mark for each mesh, beside all settings and what others have measured.

color    ranks along the one axis (tp)
shape    ranks along the other (pp)
"""

from math import inf

from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter

from ..rules import count, each_of, named, positive, stated, validate
from .canvas import canvas, legend_above, named_number, picture
from .figure import SMALL
from .formatting import number_text, tell
from .palette import GREY, INK, PAPER, SERIES

SHAPES = "os^Dv"
MOST = len(SHAPES)

a_point = stated(
    "(MFU, bytes), both > 0", lambda pair: isinstance(pair, tuple) and len(pair) == 2 and all(map(positive, pair))
)
by_mesh = stated(
    "a dict, (ranks along one axis, along the other) -> (MFU, bytes)",
    lambda value: (
        isinstance(value, dict)
        and bool(value)
        and all(isinstance(key, tuple) and len(key) == 2 and all(map(count, key)) for key in value)
    ),
)
two_names = stated(
    "a tuple of two names",
    lambda pair: isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(name, str) for name in pair),
)


@validate(
    best=by_mesh,
    every=each_of(a_point, 0),
    axes=two_names,
    published=named(positive),
    whole=positive,
    limit=named_number,
)
@picture
def plan_scatter(best, every=(), axes=("pp", "tp"), published=None, whole=None, limit=None):
    """Draw ``best``, (ranks along ``axes[0]``, along ``axes[1]``) -> (MFU, bytes), and ``every`` other plan as a dot.

    published:  name -> MFU: a line, as its memory is not known.
    whole:      seconds of a step at an MFU of 1: a second axis has the seconds.
    limit:      (name, bytes): a horizontal line.
    """
    shapes, colors = ({size: where for where, size in enumerate(sorted({*sizes}))} for sizes in zip(*best))
    for name, found in zip(axes, (shapes, colors)):
        if len(found) > MOST:
            raise ValueError(f"plan_scatter: at most {MOST} sizes of {name} can be told apart, got {len(found)}")
    points = {mesh: (100 * mfu, nbytes / 1e9) for mesh, (mfu, nbytes) in best.items()}
    fastest, smallest = max(points, key=points.get), min(points, key=lambda mesh: points[mesh][1])
    slowest = min(points, key=points.get)
    words = {"fastest": fastest, "slowest of these": slowest, "smallest of these": smallest}
    told = [f"{said}: {name_of(mesh, axes)}, {at(points[mesh])}" for said, mesh in words.items()]
    if len(every):
        mfu, nbytes = min(every, key=lambda point: point[1])
        told.append(f"smallest of all {len(every):,} settings: {at((100 * mfu, nbytes / 1e9))}")
    tell("; ".join(told))
    said = f"{len(best)} plans by MFU and GB per GPU; fastest {name_of(fastest, axes)}, {at(points[fastest])}."
    figure, place = canvas(said, height=3.9)
    if len(every):
        place.scatter(*zip(*((100 * mfu, nbytes / 1e9) for mfu, nbytes in every)), s=4, color=GREY)
    for (one, other), (x, y) in points.items():
        how = {"color": SERIES[colors[other]], "edgecolors": INK, "linewidths": 0.7, "zorder": 4}
        place.scatter(x, y, s=70, marker=SHAPES[shapes[one]], **how)
    whose = " (marks: predicted, lines: measured)" if published else ""
    place.set(yscale="log", xlabel=f"MFU, share of the peak FLOP/s{whose}", ylabel="GB per GPU at the peak")
    place.xaxis.set_major_formatter(PercentFormatter(decimals=0))
    place.yaxis.set_major_locator(LogLocator(subs=(1, 2, 4, 8)))
    place.yaxis.set_major_formatter("{x:g}")
    place.yaxis.set_minor_formatter(NullFormatter())
    place.set_xlim(left=0)
    if limit:
        place.axhline(limit[1] / 1e9, color=INK, linestyle="--", linewidth=0.9)
        place.annotate(f" {limit[0]}", (1, limit[1] / 1e9), xycoords=("axes fraction", "data"), va="center")
    write_published(place, published or {})
    if whole:
        add_seconds(place, whole)
    legend_above(figure, handles(axes, shapes, colors, len(every) > 0), fontsize=SMALL, columnspacing=1.0)
    return figure


def name_of(mesh, axes):
    return " x ".join(f"{name} {size}" for name, size in zip(axes, mesh))


def at(point):
    return f"{point[0]:.0f} % and {number_text(point[1])} GB"


def write_published(axes, published):
    """From the top down: names that are near each other do not meet."""
    low, high = axes.get_ylim()
    last, step = -inf, 0
    for name, mfu in sorted(published.items(), key=lambda item: item[1]):
        x = 100 * mfu
        step = step + 1 if x - last < 30 else 0
        last = x
        axes.axvline(x, color=INK, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
        style = {"ha": "right", "va": "bottom", "fontsize": SMALL, "zorder": 5}
        back = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.5, "alpha": 0.85}
        axes.text(x - 0.5, low * (high / low) ** (0.03 + 0.075 * step), name, bbox=back, **style)
    axes.set_ylim(low, high)


def add_seconds(axes, whole):
    above = axes.secondary_xaxis("top", functions=(lambda x: x, lambda x: x))
    shown = [seconds for seconds in (0.9, 1, 1.2, 1.5, 2, 3, 5, 10) if 5 < 100 * whole / seconds < axes.get_xlim()[1]]
    above.set_xticks([100 * whole / seconds for seconds in shown], [f"{seconds:g}" for seconds in shown])
    above.set_xlabel("seconds of a step")


def handles(axes, shapes, colors, others):
    style = {"linestyle": "none", "markeredgecolor": INK, "markersize": 6}
    found = [
        Line2D([], [], marker="o", color=SERIES[n], label=f"{axes[1]} {size}", **style) for size, n in colors.items()
    ]
    found += [
        Line2D([], [], marker=SHAPES[n], color=PAPER, label=f"{axes[0]} {size}", **style) for size, n in shapes.items()
    ]
    dots = Line2D([], [], marker="o", color=GREY, linestyle="none", markersize=2, label="other settings")
    return found + [dots] * others
