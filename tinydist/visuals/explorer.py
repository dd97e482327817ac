"""Sliders above a picture: move one, and the picture is drawn again.

The picture is the value of an Image widget, so that the notebook keeps it as a PNG where there is no kernel.
"""

import base64
import io
from contextlib import redirect_stdout

import matplotlib.pyplot as plt
from ipywidgets import HTML, Image, VBox, interactive

from .palette import png


class Explorer(VBox):
    """``Explorer(draw, ranks=(2, 16), algorithm=["ring", "star"])`` calls ``draw(ranks=..., algorithm=...)``.

    ``draw`` makes a figure, returned or not, prints a line, or both. A control is a widget, or what stands for one: (from,
    to) or (from, to, step) is a slider, a list or a dict of choices a menu, True or False a box to tick.
    """

    def __init__(self, draw, **controls):
        self.draw = draw
        self.controls = {name: control(name, given) for name, given in controls.items()}
        self.image, self.line = Image(format="png"), HTML()
        super().__init__([*self.controls.values(), self.image, self.line])
        for each in self.controls.values():
            each.observe(self.changed, "value")
        self.show()

    @property
    def values(self):
        return {name: each.value for name, each in self.controls.items()}

    def show(self):
        """Draw for the present values."""
        before, printed = set(plt.get_fignums()), io.StringIO()
        try:
            with redirect_stdout(printed):
                figure = self.draw(**self.values)
            made = [number for number in plt.get_fignums() if number not in before]
            if not isinstance(figure, plt.Figure):
                figure = plt.figure(made[-1]) if made else None
            self.image.value = png(figure) if figure else b""
        finally:
            for number in set(plt.get_fignums()) - before:
                plt.close(number)
        self.line.value = printed.getvalue().strip()

    def changed(self, change):
        self.show()

    def __repr__(self):
        return self.line.value

    def _repr_mimebundle_(self, **options):
        bundle = super()._repr_mimebundle_(**options)
        if self.image.value:
            bundle["image/png"] = base64.b64encode(self.image.value).decode()
        return bundle


def control(name, given):
    found = interactive.widget_from_abbrev(given)
    found.description = found.description or name
    return found
