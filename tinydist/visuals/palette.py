"""What each color and hatch means, the same in every picture, and how a picture looks and is shown.

The colors are those of Okabe and Ito (Color Universal Design, 2008), which color-blind readers tell apart. Hatches
say the same once more, for a print without colors.
"""

import io
from functools import wraps

import matplotlib.pyplot as plt
from IPython.display import display
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from PIL import Image

from ..rules import finite, stated

BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#56B4E9"
RED, GREY, LIGHT = "#D55E00", "#BBBBBB", "#E6E6E6"

COMPUTE = {"facecolor": BLUE, "edgecolor": "white"}
COMMUNICATION = {"facecolor": ORANGE, "edgecolor": "white", "hatch": "////"}
RECEIVED = {"facecolor": "white", "edgecolor": ORANGE}
WAITING = {"facecolor": LIGHT, "edgecolor": "#999999", "hatch": "...."}

MEMORY = {
    "parameters": {"facecolor": BLUE, "edgecolor": "white"},
    "gradients": {"facecolor": RED, "edgecolor": "white", "hatch": r"\\\\"},
    "optimizer states": {"facecolor": GREEN, "edgecolor": "white", "hatch": "----"},
    "activations": {"facecolor": SKY, "edgecolor": "white", "hatch": "...."},
    "communication": COMMUNICATION,
    "other": {"facecolor": GREY, "edgecolor": "white", "hatch": "xxxx"},
}
BYTES_SENT = LinearSegmentedColormap.from_list("bytes sent", ["white", ORANGE])
RANKS = [BLUE, ORANGE, GREEN, PURPLE, SKY, RED, "#000000", YELLOW]

STYLE = {
    "figure.figsize": (6, 2.5),
    "figure.dpi": 100,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.handleheight": 1.1,
}


named_number = stated(
    "(name, number)", lambda v: isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], str) and finite(v[1])
)


def style():
    """Ours alone: what a notebook has set for its own figures does not change these."""
    plt.draw_if_interactive()  # a notebook's backend starts here: within the context, its settings would be undone
    return plt.style.context(["default", STYLE])


class Picture(Figure):
    """A figure that a notebook shows once: as the value of a cell, or when the cell ends that drew it."""

    def draw(self, renderer):
        with style():  # ticks are made only now
            super().draw(renderer)

    def _ipython_display_(self):
        plt.close(self)  # else pyplot shows it once more
        display({"image/png": png(self), "text/plain": repr(self)}, raw=True)


def picture(draw):
    """For a function that draws: in our style, whatever that of the notebook."""

    @wraps(draw)
    def draw_in_style(*args, **options):
        with style():
            figure = draw(*args, **options)
            figure.draw_without_rendering()  # places everything, once: a second time differs by a hair
            figure.set_layout_engine("none")
        return figure

    return draw_in_style


def canvas(width=6, height=2.5, **options):
    """A new picture and its axes."""
    return plt.subplots(figsize=(width, height), FigureClass=Picture, **options)


def png(figure):
    """Its bytes, in 256 colors: a third of what as many as there are would take in a notebook."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png")
    Image.open(drawn).convert("RGB").quantize(256).save(small, format="png", optimize=True)
    return small.getvalue()


def legend_beside(axes, handles, **options):
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.01, 0.5), **options)
