"""The figure class: plot style, display in notebooks (a PNG in 256 colors), and saving.

Nothing is smaller than 8 points at the size at which a notebook shows it: inches times 100 are its pixels there. Colors
and what they mean are in palette.py.
"""

import base64
import io
import re
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from IPython import get_ipython
from IPython.display import display
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from PIL import Image, ImageDraw

from ..rules import flag, stated, validate
from .contents import drawn_in
from .palette import GREY, INK, LINE, SERIES, darkened

WIDTH = 7.2  # inches
HEADING, TEXT, SMALL = 10, 9, 8  # points; nothing is smaller
SHARP = 2  # pixels of the file for each one on the page

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


def library_style():
    """A context with the library's style, unaffected by the notebook's own settings."""
    plt.draw_if_interactive()  # a notebook's backend starts here: within the context, its settings would be undone
    return plt.style.context(["default", STYLE])


a_file = stated(
    "the name of an .svg or .png", lambda v: isinstance(v, str | Path) and Path(v).suffix in (".svg", ".png")
)


class Picture(Figure):
    """A figure that a notebook shows once: as the value of a cell, or when the cell ends that drew it.

    alt:  alternative text: what it shows, in one sentence.
    """

    def __init__(self, *args, alt="", **options):
        super().__init__(*args, **options)
        self.alt, self.boxed = alt, defaultdict(list)

    def draw(self, renderer):
        with library_style():  # ticks are made only now
            super().draw(renderer)

    @validate(path=a_file, dark=flag)
    def save(self, path, dark=False):
        """Write an .svg or a .png; ``dark``: for a dark slide."""
        path = Path(path)
        path.write_bytes(png(self, dark) if path.suffix == ".png" else svg(self, dark))

    def __repr__(self):
        return self.alt or super().__repr__()

    def _ipython_display_(self):
        plt.close(self)  # else pyplot shows it once more
        data, metadata = mimebundle(self)
        display(data | {"text/plain": repr(self)}, metadata=metadata, raw=True)


def use_style():
    """Give the notebook's own figures the library's style, and show them in the same way."""
    plt.draw_if_interactive()  # a notebook's backend sets its own way to show figures when it starts
    plt.style.use(["default", STYLE])
    if shell := get_ipython():
        shell.display_formatter.formatters["image/png"].for_type(Figure, lambda figure: (png(figure), size_of(figure)))


def mimebundle(figure):
    """(data, metadata), as a notebook stores them."""
    return {"image/png": base64.b64encode(png(figure)).decode()}, {"image/png": size_of(figure)}


def size_of(figure):
    """Width and height on the page, the alt text, and words for what is drawn."""
    width, height = (round(pixels) for pixels in figure.get_size_inches() * figure.dpi)
    said = {"alt": getattr(figure, "alt", ""), "drawn": drawn_in(figure)}
    return {"width": width, "height": height} | {name: value for name, value in said.items() if value}


def png(figure, dark=False):
    """As PNG. 256 colors take a third of the bytes of full color."""
    image, small = Image.fromarray(pixels(figure)), io.BytesIO()
    if dark:
        image = Image.fromarray((255 * darkened(np.asarray(image) / 255)).round().astype("uint8"))
    else:  # an edge where the page is white, too
        ImageDraw.Draw(image).rectangle((0, 0, image.width - 1, image.height - 1), outline=LINE, width=SHARP)
    image.quantize(256).save(small, format="png", optimize=True)
    return small.getvalue()


def pixels(figure):
    """Red, green and blue of each, [height, width, 3]. ``savefig`` would draw twice, for animated artists."""
    shown, dpi = figure.canvas, figure.dpi
    canvas = FigureCanvasAgg(figure)
    try:
        figure.dpi = SHARP * dpi
        canvas.draw()
    finally:
        figure.dpi = dpi
        figure.set_canvas(shown)
    return np.asarray(canvas.buffer_rgba())[..., :3]


def svg(figure, dark=False):
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None, "Description": getattr(figure, "alt", "")})
    if not dark:
        return drawn.getvalue()
    return re.sub(rb"#[0-9a-f]{6}\b", lambda color: dark_hex(color[0].decode()).encode(), drawn.getvalue())


def dark_hex(color):
    return to_hex(darkened(to_rgb(color)))
