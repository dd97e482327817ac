"""The calls that ranks have made, a row for each rank: call 1, call 2 and so on, in a color for each line of code."""

from collections import Counter

from matplotlib.patches import Rectangle

from ..rules import each_of, stated, validate, whole
from .canvas import blocks, canvas, inside, picture
from .formatting import counted, tell
from .palette import INK, LIGHT, PAPER, SERIES, tint

ROW, WIDE = 0.8, 0.92  # of a cell: its height, its width

records = stated(
    "a list of texts for each rank, and at least one text",
    lambda value: each_of(each_of(str, 0))(value) and any(value),
)


@validate(calls=records, mark=whole)
@picture
def call_grid(calls, mark=None):
    """Draw ``calls[rank]``, texts, in their order: blue is the most frequent one. ``mark``: a call to frame, from 1."""
    frequent = [text for text, _ in Counter(text for row in calls for text in row).most_common()]
    longest = max(map(len, calls))
    if len(frequent) > len(SERIES):
        raise ValueError(f"call_grid: at most {len(SERIES)} different texts have a color, got {len(frequent)}")
    if mark is not None and not 1 <= mark <= longest:
        raise ValueError(f"call_grid: mark must be one of the calls 1 to {longest}, got {mark}")
    tell(in_words(calls, mark))
    figure, axes = canvas(
        f"A grid of {counted(len(calls), 'rank')} and up to {longest} calls.", 0.36 * len(calls) + 0.5
    )
    color = {text: tint(SERIES[number], 0.45) for number, text in enumerate(frequent)}
    for rank, row in enumerate(calls):
        for number in range(longest):
            box = (number + (1 - WIDE) / 2, rank + (1 - ROW) / 2, WIDE, ROW)
            fill = color[row[number]] if number < len(row) else LIGHT
            blocks(axes, [box], facecolors=fill, edgecolors=PAPER)
            inside(axes, box, row[number] if number < len(row) else "no call", fill, together="calls")
    if mark:
        axes.add_patch(Rectangle((mark - 1, 0), 1, len(calls), fill=False, edgecolor=INK, linewidth=2, zorder=4))
    axes.set(xlim=(-0.1, longest + 0.1), ylim=(len(calls) + 0.1, -0.1))
    axes.set_xticks([number + 0.5 for number in range(longest)], [f"call {1 + number}" for number in range(longest)])
    axes.set_yticks([rank + 0.5 for rank in range(len(calls))], [f"rank {rank}" for rank in range(len(calls))])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    return figure


def in_words(calls, mark):
    sizes = [len(row) for row in calls]
    text = f"{counted(len(calls), 'rank')} with {', '.join(map(str, sizes))} calls"
    if not mark:
        return text
    made = [row[mark - 1] if mark <= len(row) else "none" for row in calls]
    return f"{text}; call {mark} is {', '.join(made)}"
