"""What a picture is drawn on, and with: axes, texts that fit into their boxes, axes with units, legends.

@picture                            # in our style, placed once and for all
def mine(run):
    figure, axes = canvas("Two ranks, of which ...", height=2)      # alt: what it shows, in one sentence
    inside(axes, (left, bottom, width, height), "F1", fill=BLUE)    # written if there is room
    measure(axes.xaxis, run.seconds, SECONDS, "virtual time")       # numbers with their unit
    return figure
"""

from functools import wraps
from itertools import pairwise

import matplotlib.pyplot as plt
from matplotlib.collections import PolyCollection
from matplotlib.font_manager import FontProperties

from ..rules import finite, stated
from .page import Picture
from .palette import ink_on
from .style import SMALL, WIDTH, style
from .words import unit_for

MARGIN = 2  # points around a text in a box, both sides together


named_number = stated(
    "(name, number)", lambda v: isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], str) and finite(v[1])
)


def canvas(alt, height=2.5, width=WIDTH, **options):
    """A new picture and its axes."""
    return plt.subplots(figsize=(width, height), FigureClass=Picture, alt=alt, **options)


def picture(draw):
    """For a function that draws: in our style, whatever that of the notebook."""

    @wraps(draw)
    def draw_in_style(*args, **options):
        with style():
            figure = draw(*args, **options)
            figure.draw_without_rendering()  # places everything, once: a second time differs by a hair
            figure.set_layout_engine("none")
            write_what_fits(figure)
        return figure

    return draw_in_style


def blocks(axes, boxes, **look):
    """Draw many boxes, (left, bottom, width, height), quickly; of a look or of several, as PolyCollection has them."""
    corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in boxes]
    return axes.add_collection(PolyCollection(corners, **{"zorder": 2} | look))


def inside(axes, box, text, fill, together=None, **look):
    """Write ``text`` into the middle of ``box``, (left, bottom, width, height) of color ``fill``, if there is room.

    text:      or several, of which the first is written that has room.
    together:  texts of one name are written all, each the same of its several, or none.
    """
    choices = [text] if isinstance(text, str | int) else text
    look = {"color": ink_on(fill), "fontsize": SMALL} | look
    axes.figure.boxed[together or object()].append((axes, box, [str(each) for each in choices], look))


def write_what_fits(figure):
    renderer = figure.canvas.get_renderer()
    for texts in figure.boxed.values():
        most = min(len(choices) for _, _, choices, _ in texts)
        numbers = (n for n in range(most) if all(fits(renderer, axes, box, c[n], look) for axes, box, c, look in texts))
        number = next(numbers, None)
        for axes, (left, bottom, width, height), choices, look in texts if number is not None else ():
            place = {"ha": "center", "va": "center_baseline", "zorder": 5}
            axes.text(left + width / 2, bottom + height / 2, choices[number], **place | look)


def fits(renderer, axes, box, text, look):
    left, bottom, width, height = box
    (x0, y0), (x1, y1) = axes.transData.transform([(left, bottom), (left + width, bottom + height)])
    font = FontProperties(size=look["fontsize"], weight=look.get("fontweight", "normal"))
    wide, high, _ = renderer.get_text_width_height_descent(text, font, ismath=False) if text else (0, 0, 0)
    return wide + renderer.points_to_pixels(MARGIN) <= abs(x1 - x0) and high <= abs(y1 - y0)


def measure(axis, most, units, name):
    """Count in the unit in which ``most`` is 1 or more, and say so. ``units``: SECONDS or BYTES, of words.py."""
    size, unit = unit_for(most, units)
    axis.set_major_formatter(lambda number, _: f"{number / size:g}")
    axis.set_label_text(f"{name} ({unit})")


def apart(places, least, highest=float("inf")):
    """The places, in their order, moved as little as makes them ``least`` apart, from below; none above ``highest``."""
    order = sorted(range(len(places)), key=lambda each: places[each])
    found = dict(enumerate(places))
    for lower, upper in pairwise(order):
        found[upper] = max(found[upper], found[lower] + least)
    for each in reversed(order):
        found[each] = min(found[each], highest)
        highest = found[each] - least
    return list(found.values())


def legend_above(figure, handles, **options):
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), **options)
