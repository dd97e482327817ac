"""How a picture is shown and kept: a PNG on white, in 256 colors, with two pixels for each one on the page."""

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

from ..rules import flag, stated, takes
from .palette import LINE, darkened
from .style import STYLE, style

SHARP = 2  # pixels of the file for each one on the page


a_file = stated(
    "the name of an .svg or .png", lambda v: isinstance(v, str | Path) and Path(v).suffix in (".svg", ".png")
)


class Picture(Figure):
    """A figure that a notebook shows once: as the value of a cell, or when the cell ends that drew it.

    alt:  what it shows, in one sentence, for whoever does not see it.
    """

    def __init__(self, *args, alt="", **options):
        super().__init__(*args, **options)
        self.alt, self.boxed = alt, defaultdict(list)

    def draw(self, renderer):
        with style():  # ticks are made only now
            super().draw(renderer)

    @takes(path=a_file, dark=flag)
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
    """From here on a notebook's own figures look, and are shown, as the pictures of this library."""
    plt.draw_if_interactive()  # a notebook's backend sets its own way to show figures when it starts
    plt.style.use(["default", STYLE])
    if shell := get_ipython():
        shell.display_formatter.formatters["image/png"].for_type(Figure, lambda figure: (png(figure), size_of(figure)))


def mimebundle(figure):
    """What a notebook keeps, and how it shows that: (data, metadata)."""
    return {"image/png": base64.b64encode(png(figure)).decode()}, {"image/png": size_of(figure)}


def size_of(figure):
    """On the page; and what is there for whoever does not see it."""
    width, height = (round(pixels) for pixels in figure.get_size_inches() * figure.dpi)
    return {"width": width, "height": height} | ({"alt": figure.alt} if getattr(figure, "alt", "") else {})


def png(figure, dark=False):
    """Its bytes: in 256 colors a third of what as many as there are would take."""
    image, small = Image.fromarray(pixels(figure)), io.BytesIO()
    if dark:
        image = Image.fromarray((255 * darkened(np.asarray(image) / 255)).round().astype("uint8"))
    else:  # an edge where the page is white, too
        ImageDraw.Draw(image).rectangle((0, 0, image.width - 1, image.height - 1), outline=LINE, width=SHARP)
    image.quantize(256).save(small, format="png", optimize=True)
    return small.getvalue()


def pixels(figure):
    """Red, green and blue of each, [height, width, 3]. ``savefig`` would draw twice: it looks first for what moves."""
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
