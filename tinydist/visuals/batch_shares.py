"""How a batch is dealt to ranks: a column of boxes for each, and what each box counts in the mean of the means."""

from matplotlib.ticker import MaxNLocator

from ..rules import each_of, stated, validate, whole
from .canvas import blocks, canvas, picture
from .formatting import tell
from .palette import INK, PAPER, RANKS, RED

HIGH, WIDE = 0.9, 0.8  # of a box

counts = stated("whole numbers, one for each rank", each_of(lambda value: whole(value) and value >= 0))


@validate(sizes=counts, unit=str)
@picture
def batch_shares(sizes, unit="sequences"):
    """Draw ``sizes[rank]`` boxes for each rank. A rank without any is crossed out.

    Above each share stands how much one of its boxes counts if the ranks average their means: in bold red, where
    that is not 1 of all.
    """
    ranks, total = len(sizes), sum(sizes)
    if ranks > len(RANKS):
        raise ValueError(f"batch_shares: at most {len(RANKS)} ranks are supported, got {ranks}")
    empty = [rank for rank, size in enumerate(sizes) if not size]
    said = f"shares of {', '.join(map(str, sizes))} {unit}"
    tell(said + f"; nothing for rank {', '.join(map(str, empty))}" * bool(empty))
    figure, axes = canvas(f"{total} {unit} dealt to {ranks} ranks: {said}.")
    for rank, size in enumerate(sizes):
        boxes = [(rank - WIDE / 2, number, WIDE, HIGH) for number in range(size)]
        blocks(axes, boxes, facecolor=RANKS[rank], edgecolor=PAPER)
        if size:
            parts = ranks * size
            look = {"color": INK} if parts == total else {"color": RED, "weight": "bold"}
            axes.text(rank, size + 0.4, f"1/{parts} each", **look, ha="center", va="bottom")
        else:
            cross_out(axes, rank, max(sizes))
    axes.set_xticks(range(len(RANKS)), [f"rank {rank}" if rank < ranks else "" for rank in range(len(RANKS))])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, len(RANKS) - 0.4)
    axes.set_ylim(0, 1.15 * total + 0.8)
    axes.set_ylabel(unit)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    return figure


def cross_out(axes, rank, high):
    left, right = rank - WIDE / 2, rank + WIDE / 2
    axes.plot([left, right, right, left, left], [0, 0, high, high, 0], color=RED, linestyle="--")
    axes.plot([left, right], [0, high], color=RED)
    axes.plot([left, right], [high, 0], color=RED)
    axes.text(rank, high + 0.4, "nothing", color=RED, ha="center", va="bottom")
