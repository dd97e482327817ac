"""What each rank has, as points, and their average, as a bar: gradients before and after an all-reduce."""

from ..rules import each_of, finite, validate
from .canvas import canvas, legend_above, picture
from .formatting import counted, ranks_text, tell
from .palette import INK, RANKS

MARKERS = "o^sDv<>p"
WIDE, HIGH = 0.7, 0.025  # of a bar; of the height of the picture


@validate(values=each_of(each_of(finite)), average=each_of(finite), x=str, y=str)
@picture
def rank_values(values, average, x, y):
    """Draw ``values[rank]``, some numbers, as points, and ``average``, as many, as black bars among them."""
    if len(values) > len(RANKS):
        raise ValueError(f"rank_values: at most {len(RANKS)} ranks are supported, got {len(values)}")
    for rank, own in enumerate(values):
        if len(own) != len(average):
            raise ValueError(f"rank_values: the average has {len(average)} numbers, but rank {rank} has {len(own)}")
    tell(f"{counted(len(average), 'number')} of {ranks_text(len(values))}, and their average")
    figure, axes = canvas(f"Points of {ranks_text(len(values))}, {y}, and black bars at the average of each of {x}.")
    every = [number for own in [*values, average] for number in own]
    high = HIGH * (max(every) - min(every)) or 1
    for place, number in enumerate(average, 1):
        bar = axes.bar(place, high, WIDE, number - high / 2, color=INK)
    handles = []
    for rank, own in enumerate(values):
        beside = [place + 0.6 * WIDE * ((rank + 0.5) / len(values) - 0.5) for place in range(1, len(own) + 1)]
        style = {"color": RANKS[rank], "label": f"rank {rank}", "zorder": 3}
        handles += axes.plot(beside, own, MARKERS[rank], **style)
    bar.set_label("average")
    axes.set_xticks(range(1, len(average) + 1))
    axes.margins(y=0.1)
    axes.set(xlabel=x, ylabel=y)
    legend_above(figure, [*handles, bar], columnspacing=1, handletextpad=0.3)
    return figure
