"""What a training step costs, in two charts on the same rows: its time by part, its peak memory by purpose."""

from matplotlib.patches import Patch

from ..rules import amount, named, positive, stated, validate
from .canvas import canvas, legend_above, picture
from .figure import SMALL
from .formatting import BYTES, SECONDS, number_text, tell, unit_for
from .palette import INK, LINE, MEMORY, PAPER, SOFT

THICK = 0.66
PARTS = (SOFT, INK)  # of the time: a color is a purpose of memory, and so is the light grey of what is other
ROOM = 1.18  # of the longest bar, for its number

costs = stated(
    'a dict, name -> {"seconds": {part: seconds}, "memory": {purpose: bytes}}',
    lambda steps: named(
        stated(
            "",
            lambda one: isinstance(one, dict) and one.keys() == {"seconds", "memory"} and all(map(parts, one.values())),
        )
    )(steps),
)
parts = named(amount)


@validate(steps=costs, cut=positive)
@picture
def step_costs(steps, cut=None):
    """Draw ``steps``, name -> {"seconds": {part: seconds}, "memory": {purpose: bytes}}: a row for each.

    cut:  seconds at which the axis of time ends; a longer bar is cut there, and its number has an arrow.
    """
    kinds = list(dict.fromkeys(part for step in steps.values() for part in step["seconds"]))
    if len(kinds) > len(PARTS):
        raise ValueError(f"step_costs: at most {len(PARTS)} parts of the time are supported, got {len(kinds)}: {kinds}")
    times = {name: sum(step["seconds"].values()) for name, step in steps.items()}
    held = {name: sum(step["memory"].values()) for name, step in steps.items()}
    second, seconds = unit_for(min(cut or max(times.values()), max(times.values())), SECONDS)
    byte, nbytes = unit_for(max(held.values()), BYTES)
    said = [
        f"{name} {times[name] / second:,.0f} {seconds}, {number_text(held[name] / byte)} {nbytes}" for name in steps
    ]
    tell("; ".join(said))
    figure, axes = canvas(
        f"Time and memory of a step: {'; '.join(said)}.", 1.1 + 0.3 * len(steps), ncols=2, sharey=True
    )
    last = (cut or max(times.values())) / second
    for row, (name, step) in enumerate(steps.items()):
        draw_row(axes[0], row, {kind: step["seconds"].get(kind, 0) / second for kind in kinds}, PARTS, last)
        total = times[name] / second
        write(axes[0], min(total, last), row, f"{'→ ' if total > last else ''}{total:,.0f}")
        purposes = [purpose for purpose in MEMORY if step["memory"].get(purpose)]
        colors = [MEMORY[purpose]["facecolor"] for purpose in purposes]
        draw_row(axes[1], row, {each: step["memory"][each] / byte for each in purposes}, colors, None)
        write(axes[1], held[name] / byte, row, number_text(held[name] / byte))
    axes[0].set_yticks(range(len(steps)), [*steps])
    axes[0].set_ylim(len(steps) - 0.5, -0.5)
    axes[0].set(xlim=(0, ROOM * last), xlabel=f"{seconds} for a step")
    axes[1].set(xlim=(0, ROOM * max(held.values()) / byte), xlabel=f"{nbytes} at the peak")
    for each in axes:
        each.grid(axis="x", color=LINE)
        each.tick_params(axis="y", length=0)
    legend_above(figure, [*patches(kinds, PARTS), *purposes_of(steps)])
    return figure


def draw_row(axes, row, lengths, colors, last):
    start = 0
    for length, color in zip(lengths.values(), colors):
        shown = length if last is None else max(0, min(length, last - start))
        axes.barh(row, shown, THICK, start, color=color, edgecolor=PAPER, linewidth=0.5)
        start += length


def write(axes, x, row, text):
    axes.annotate(text, (x, row), (4, 0), textcoords="offset points", va="center_baseline", fontsize=SMALL)


def patches(names, colors):
    return [Patch(label=name, facecolor=color) for name, color in zip(names, colors)]


def purposes_of(steps):
    there = {purpose for step in steps.values() for purpose, held in step["memory"].items() if held}
    return [Patch(label=purpose, **look) for purpose, look in MEMORY.items() if purpose in there]
