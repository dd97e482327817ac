"""Memory plans side by side: each buffer a box, from its first step to its last, on the bytes that it has."""

from ..rules import each_of, named, stated, validate, whole
from .canvas import blocks, canvas, inside, measure, picture
from .figure import SMALL
from .formatting import BYTES, bytes_text, counted, tell
from .palette import INK, PAPER, RED, SKY

HIGH = 3.2  # inches

four = "(first step, last step, offset, bytes)"
boxes = each_of(stated(four, lambda given: isinstance(given, tuple) and len(given) == 4 and all(map(whole, given))))


@validate(plans=named(boxes))
@picture
def memory_plan(plans):
    """Draw ``plans``, title -> [(first step, last step, offset, bytes)], with the end of the last byte of each."""
    ends = {title: max(offset + nbytes for _, _, offset, nbytes in plan) for title, plan in plans.items()}
    steps = max(last for plan in plans.values() for _, last, _, _ in plan) + 1
    said = "; ".join(f"{title}: {counted(len(plans[title]), 'buffer')} in {bytes_text(ends[title])}" for title in plans)
    tell(said)
    figure, grid = canvas(f"Memory plans over steps. {said}.", HIGH, ncols=len(plans), sharey=True, squeeze=False)
    most = max(ends.values())
    for axes, (title, plan) in zip(grid[0], plans.items()):
        places = [(first, offset, last + 1 - first, nbytes) for first, last, offset, nbytes in plan]
        blocks(axes, places, facecolor=SKY, edgecolor=PAPER, linewidth=0.8)
        for place in places:
            inside(axes, place, bytes_text(place[3]), SKY)
        axes.axhline(ends[title], color=RED, linestyle="--", linewidth=1)
        words = {"color": INK, "fontsize": SMALL, "va": "bottom", "ha": "right"}
        axes.annotate(bytes_text(ends[title]), (steps, ends[title]), (0, 2), textcoords="offset points", **words)
        axes.set(title=title, xlabel="steps", xlim=(0, steps), ylim=(0, 1.1 * most))
    measure(grid[0][0].yaxis, most, BYTES, "offset")
    return figure
