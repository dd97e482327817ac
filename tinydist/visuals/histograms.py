"""How numbers are distributed by size: histograms above one another, on one axis of powers of two."""

import numpy as np

from ..rules import each_of, finite, named, stated, validate
from .canvas import canvas, picture
from .figure import SMALL
from .formatting import counted, tell
from .palette import BLUE, DARK, LIGHT

WIDE = 0.5  # of a bin, in powers of two

a_limit = stated(
    "(name, power of 2)", lambda v: isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], str) and finite(v[1])
)


@validate(sizes=named(each_of(finite)), x=str, below=a_limit)
@picture
def histograms(sizes, x="size, power of 2", below=None):
    """Draw a histogram for each of ``sizes``, title -> numbers other than 0.

    below:  (name, power of 2): a gray zone of all that is smaller, in every histogram.
    """
    for title, numbers in sizes.items():
        zeros = sum(number == 0 for number in numbers)
        if zeros:
            are = "is" if zeros == 1 else "are"
            raise ValueError(f"histograms: 0 has no power of two, and {counted(zeros, 'number')} of {title!r} {are} 0")
    powers = {title: np.log2(np.abs(np.asarray(numbers, dtype=float))) for title, numbers in sizes.items()}
    low = np.floor(min([each.min() for each in powers.values()] + ([below[1]] if below else []))) - 1
    high = np.ceil(max(each.max() for each in powers.values())) + 1
    said = [f"{title}: {len(each):,} numbers" for title, each in powers.items()]
    tell("; ".join(said))
    figure, panels = canvas(
        f"Histograms of sizes: {'; '.join(said)}.",
        0.6 + 1.0 * len(sizes),
        nrows=len(sizes),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    emptiest = min(powers, key=lambda title: (powers[title] < below[1]).sum()) if below else None  # its zone has room
    for axes, (title, each) in zip(panels[:, 0], powers.items()):
        axes.hist(each, bins=np.arange(low, high + WIDE, WIDE), color=BLUE)
        axes.set_yscale("log")
        axes.set_title(title)
        if below:
            axes.axvspan(low, below[1], color=LIGHT, zorder=0)
            if title == emptiest:
                place = {"xycoords": axes.get_xaxis_transform(), "va": "top", "color": DARK, "fontsize": SMALL}
                axes.annotate(below[0], (low + 0.2, 0.95), **place)
    panels[-1, 0].set(xlabel=x, xlim=(low, high))
    panels[len(sizes) // 2, 0].set_ylabel("how many")
    return figure
