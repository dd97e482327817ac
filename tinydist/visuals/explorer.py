"""Interactive controls (sliders, menus) that redraw a plot.

The picture is the value of an Image widget, and a notebook keeps it as PNG: it is there where no kernel runs.
"""

import base64
import io
from contextlib import redirect_stdout
from html import escape

import matplotlib.pyplot as plt
from ipywidgets import HTML, Image, VBox, interactive
from matplotlib.figure import Figure

from .figure import library_style, mimebundle

AS_SAVED = {"align_self": "flex-start", "max_width": "100%", "margin": "0"}  # a box would stretch it, and then scroll
NOTHING = {}, {}  # no picture: its data and metadata


class Explorer(VBox):
    """``Explorer(draw, ranks=(2, 16), algorithm=["ring", "star"])`` is a picture for each ranks and algorithm.

    ``draw`` makes a figure, returned or left to pyplot, prints lines, or both. A control is a widget of ipywidgets, or
    what stands for one: (from, to) or (from, to, step) is a slider, a list or a dict of choices a menu, True or False
    a box to tick.
    """

    def __init__(self, draw, **controls):
        self.draw = draw
        self.controls = {name: control(name, given) for name, given in controls.items()}
        self.image, self.line = Image(format="png", layout=AS_SAVED), HTML()
        super().__init__([*self.controls.values(), self.image, self.line])
        self.redraw()
        for each in self.controls.values():
            each.observe(self.changed, "value")

    @property
    def values(self):
        return {name: each.value for name, each in self.controls.items()}

    def redraw(self):
        """Draw for the present values."""
        self.show(*drawn(self.draw, self.values))

    def show(self, bundle, text):
        data, metadata = bundle
        self.image.value = base64.b64decode(data.get("image/png", ""))
        self.image.layout.display = None if data else "none"
        self.image.layout.width = f"{metadata['image/png']['width']}px" if data else None
        self.bundle, self.text = bundle, text
        self.line.value = f"<pre>{escape(text)}</pre>"

    def changed(self, change):
        self.line.value = "<pre>drawing ...</pre>"
        try:
            self.redraw()
        except Exception as error:  # there is no cell under which it would be shown
            self.show(NOTHING, f"{type(error).__name__}: {error}")  # the picture is of other values

    def still(self):
        """(data, metadata) of the picture for a page without a kernel."""
        return self.bundle

    def __repr__(self):
        values = ", ".join(f"{name}={value!r}" for name, value in self.values.items())
        return f"Explorer({values})" + (f"\n{self.text}" if self.text else "")

    def _repr_mimebundle_(self, **options):
        data, metadata = self.still()
        return super()._repr_mimebundle_(**options) | {"text/plain": repr(self)} | data, metadata


def control(name, given):
    found = interactive.widget_from_abbrev(given)
    if found is None:
        raise ValueError(f"Explorer: {name} must be a widget, or a range or choices that make one, got {given!r}")
    if not found.description:
        found.description = name
        found.style.description_width = "initial"  # as wide as it needs
    return found


def drawn(draw, values):
    """((data, metadata), text) of ``draw(**values)``; its figures are closed, so that no cell shows them."""
    before, printed = set(plt.get_fignums()), io.StringIO()
    try:
        with redirect_stdout(printed), library_style():
            plt.figure()  # for what is left to pyplot, which else draws into another cell's figure
            returned = draw(**values)
            figure = returned if isinstance(returned, Figure) else plt.gcf()
            bundle = mimebundle(figure) if figure.axes else NOTHING
    finally:
        for number in set(plt.get_fignums()) - before:
            plt.close(number)
    return bundle, printed.getvalue().strip()
