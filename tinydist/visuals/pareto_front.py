"""Pareto plots: two costs of each choice as a point, and the Pareto front."""

from matplotlib.ticker import LogLocator, NullFormatter

from ..rules import each_of, positive, stated, validate
from .canvas import canvas, legend_above, named_number, picture
from .formatting import number_text, tell
from .palette import BLUE, GREY, INK, RED

two_costs = stated(
    "(x, y), both > 0", lambda pair: isinstance(pair, tuple) and len(pair) == 2 and all(map(positive, pair))
)


@validate(points=each_of(two_costs), x=str, y=str, limit=named_number)
@picture
def pareto_front(points, x, y, limit=None):
    """Draw ``points``, (x, y) of each choice, on axes of powers, with their front.

    limit:  (name, number): a horizontal line. The best choice, of least x, of those that are not above it is marked.
    """
    figure, axes = canvas(f"{len(points)} points of {x} and {y}, and their front.", height=3.2)
    best = front_of(points)
    handles = [axes.scatter(*zip(*points), s=3, color=GREY, label=f"all {len(points):,}")]
    handles += axes.plot(*zip(*best), "o-", color=BLUE, label="the front")
    spans = [" to ".join(map(number_text, ends)) for ends in zip(best[0], best[-1])]
    said = [f"front: {spans[0]} [{x}], {spans[1]} [{y}]"]
    if limit:
        axes.axhline(limit[1], color=INK, linestyle="--", linewidth=0.9)
        place = {"xycoords": ("axes fraction", "data"), "va": "center"}
        axes.annotate(f" {limit[0]}", (1, limit[1]), **place)
        if under := [pair for pair in points if pair[1] <= limit[1]]:
            chosen = {"color": RED, "markersize": 7, "label": f"the best of {len(under):,} within {limit[0]}"}
            handles += axes.plot(*min(under), "D", **chosen)
            said.append(f"the best within {limit[0]}: " + ", ".join(map(number_text, min(under))))
    tell("; ".join(said))
    axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    legend_above(figure, handles)
    return figure


def front_of(points):
    """Pareto-optimal points, from the least x to the least y."""
    found = []
    for pair in sorted(points):
        if not found or pair[1] < found[-1][1]:
            found.append(pair)
    return found
