"""Roofline plots: attainable FLOP/s by arithmetic intensity, with operators as points."""

import numpy as np
from matplotlib.lines import Line2D

from ..hardware import Device
from ..rules import named, positive, stated, validate
from .canvas import canvas, picture
from .figure import SMALL
from .formatting import number_text, tell
from .palette import BLUE, GREEN, GREY, LIGHT, RED, SOFT

TERA = 1e12
MARGIN, ROOM = 4, 8  # how many times as far as the points the axes go; to the right, where names stand
APART = 4  # how many times the intensity makes room for a name
LINE = 11  # points from one name to the next


@validate(
    device=Device,
    intensities=stated("a dict, operator -> FLOPs per byte, > 0", named(positive)),
    dtype=str,
    reached=stated("a dict, operator -> FLOP/s, > 0", named(positive)),
)
@picture
def roofline(device, intensities, dtype="bfloat16", reached=None, cache=None):
    """Draw what ``device`` reaches at each intensity, and the operators of ``intensities``, name -> FLOPs per byte.

    Left of the ridge point an operator is memory-bound, right of it compute-bound. ``reached``, name -> FLOP/s, draws
    an open point below that of the operator: what is expected of it. ``cache``, (name, bytes/s), draws a second roof,
    dashed: that of a cache.
    """
    peak, bandwidth = device.peak_of(dtype), device.memory_bandwidth
    ridge = peak / bandwidth
    bound = [name for name, intensity in intensities.items() if intensity < ridge]
    said = f"memory-bound: {', '.join(bound) or 'none'}"
    tell(f"{device}, ridge at {ridge:.0f} FLOPs per byte; {said}")
    figure, axes = canvas(f"Roofline of {device} with its ridge at {ridge:.0f} FLOPs per byte; {said}.", height=3)
    low, high = min(*intensities.values(), ridge) / MARGIN, max(*intensities.values(), ridge) * ROOM
    corners = np.array([low, ridge, high])
    axes.axvspan(low, ridge, color=LIGHT, zorder=0)
    axes.loglog(corners, np.minimum(peak, corners * bandwidth) / TERA, color=SOFT)
    axes.axvline(ridge, color=GREY, linewidth=0.8)
    if cache:
        draw_roof_of(cache, axes, peak, low, high, [each for each in intensities.values() if each < ridge])
    style = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points", "ha": "center"}
    axes.annotate("memory-bound", ((low * ridge) ** 0.5, 1), (0, -3), va="top", color=SOFT, **style)
    axes.annotate("compute-bound", ((ridge * high) ** 0.5, 1), (0, -3), va="top", color=SOFT, **style)
    axes.annotate(f"ridge: {ridge:.0f}", (ridge, 1), (0, 3), va="bottom", **style)
    for names, intensity, line in placed(intensities, ridge):
        point = intensity, min(peak, intensity * bandwidth) / TERA
        left = intensity < ridge
        axes.plot(*point, "o", color=RED if left else BLUE, zorder=3)
        above = left and not cache  # where a cache's roof is
        place = {"ha": "right", "va": "bottom"} if above else {"ha": "left", "va": "top"}
        offset = (-5, 3 + LINE * line) if above else (5, -4 - (0 if left else LINE * line))
        relpos = (1, 0) if above else (0, 0.5)
        leader = {"arrowstyle": "-", "color": GREY, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 3, "relpos": relpos}
        style = {
            **place,
            "textcoords": "offset points",
            "fontsize": SMALL,
            "arrowprops": leader if offset[1] < -4 or offset[1] > 3 else None,
        }
        axes.annotate(names, point, offset, **style)
    for name, rate in (reached or {}).items():
        intensity = intensities[name]
        roof = min(peak, intensity * bandwidth)
        axes.plot([intensity, intensity], [rate / TERA, roof / TERA], color=GREY, linewidth=0.8, zorder=1)
        color = RED if intensity < ridge else BLUE
        axes.plot(intensity, rate / TERA, "o", markerfacecolor="white", color=color, zorder=3)
    if reached:
        marks = [Line2D([], [], marker="o", linestyle="", color=SOFT, markerfacecolor=face) for face in (SOFT, "white")]
        axes.legend(marks, ["at most, by the roofline", "expected"], loc="lower right")
    axes.set_xlim(low, high)
    axes.set_ylim(top=4 * peak / TERA)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda number, _: number_text(number))
    axes.set_xlabel("arithmetic intensity (FLOPs per byte)")
    axes.set_ylabel("TFLOP/s" if reached else "TFLOP/s at most")
    return figure


def draw_roof_of(cache, axes, peak, low, high, intensities):
    """With an open point for each operator that memory would hold up."""
    name, bandwidth = cache
    ridge = peak / bandwidth
    corners = np.array([low, ridge, high])
    axes.loglog(corners, np.minimum(peak, corners * bandwidth) / TERA, "--", color=GREEN)
    for intensity in intensities:
        rate = min(peak, intensity * bandwidth) / TERA
        axes.plot(intensity, rate, "o", markerfacecolor="white", color=GREEN, zorder=3)
    where = {"xytext": (0, 5), "textcoords": "offset points", "ha": "center", "va": "bottom", "color": GREEN}
    axes.annotate(f"all from {name}, ridge: {ridge:.0f}", (ridge, peak / TERA), **where)


def placed(intensities, ridge):
    """(names, intensity, how many lines from its point). Names of one point stand together, those of close points on
    lines of their own: each starts where no other's leader passes, so on the right the last point is named first."""
    at = {}
    for name, intensity in sorted(intensities.items(), key=lambda item: item[1]):
        at.setdefault(intensity, []).append(name)
    left = [intensity for intensity in at if intensity < ridge]
    right = [intensity for intensity in reversed(at) if intensity >= ridge]
    for side in (left, right):
        line, before = 0, None
        for intensity in side:
            close = before and max(intensity, before) < APART * min(intensity, before)
            line, before = line + 1 if close else 0, intensity
            yield ", ".join(at[intensity]), intensity, line
