"""How every picture looks: fonts, sizes, lines. Colors and what they mean are in palette.py.

Nothing is smaller than 8 points at the size at which a notebook shows it: inches times 100 are its pixels there.
"""

import matplotlib.pyplot as plt

from .palette import GREY, INK, LINE, SERIES

WIDTH = 7.2  # inches
HEADING, TEXT, SMALL = 10, 9, 8  # points; nothing is smaller

STYLE = {
    "figure.figsize": (WIDTH, 2.5),
    "figure.dpi": 100,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.constrained_layout.h_pad": 0.08,
    "font.size": TEXT,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": HEADING,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": TEXT,
    "axes.prop_cycle": plt.cycler(color=SERIES),
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    "legend.title_fontsize": SMALL,
    "legend.handlelength": 1.2,
    "legend.handleheight": 0.9,
    "svg.hashsalt": "tinydist",  # the same file for the same run
}


def style():
    """Ours alone: what a notebook has set for its own figures does not change these."""
    plt.draw_if_interactive()  # a notebook's backend starts here: within the context, its settings would be undone
    return plt.style.context(["default", STYLE])
