"""Drawing primitives: figures, axes with units, text that fits its box, legends.

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
from .figure import SMALL, WIDTH, Picture, library_style
from .formatting import unit_for
from .palette import ink_on

MARGIN = 2  # points around a text in a box, both sides together


named_number = stated(
    "(name, number)", lambda v: isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], str) and finite(v[1])
)


def canvas(alt, height=2.5, width=WIDTH, **options):
    """A new picture and its axes."""
    return plt.subplots(figsize=(width, height), FigureClass=Picture, alt=alt, **options)


def picture(draw):
    """Decorator: draw in the library's style, whatever the notebook's is."""

    @wraps(draw)
    def draw_in_style(*args, **options):
        with library_style():
            figure = draw(*args, **options)
            figure.draw_without_rendering()  # places everything, once: a second time differs by a hair
            figure.set_layout_engine("none")
            write_what_fits(figure)
        return figure

    return draw_in_style


def blocks(axes, boxes, **style):
    """Draw many boxes, (left, bottom, width, height), quickly; in one style or several, as PolyCollection has them."""
    corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in boxes]
    return axes.add_collection(PolyCollection(corners, **{"zorder": 2} | style))


LEADING = 1.2  # from line to line, in heights of a line


def inside(axes, box, text, fill, together=None, **style):
    """Write ``text`` into the middle of ``box``, (left, bottom, width, height) of color ``fill``, if there is room.

    text:      or several: the first that fits is written.
    together:  texts of one name are written all, each the same of its several, or none.
    """
    choices = [text] if isinstance(text, str | int) else text
    style = {"color": ink_on(fill), "fontsize": SMALL} | style
    axes.figure.boxed[together or object()].append((axes, box, [str(each) for each in choices], style))


def write_what_fits(figure):
    renderer = figure.canvas.get_renderer()
    for texts in figure.boxed.values():
        for number in range(min(len(choices) for _, _, choices, _ in texts)):
            if all(fits(renderer, axes, box, choices[number], style) for axes, box, choices, style in texts):
                for axes, (left, bottom, width, height), choices, style in texts:
                    place = {"ha": "center", "va": "center_baseline", "zorder": 5}
                    axes.text(left + width / 2, bottom + height / 2, choices[number], **place | style)
                break


def fits(renderer, axes, box, text, style):
    left, bottom, width, height = box
    (x0, y0), (x1, y1) = axes.transData.transform([(left, bottom), (left + width, bottom + height)])
    font = FontProperties(size=style["fontsize"], weight=style.get("fontweight", "normal"))
    lines = [renderer.get_text_width_height_descent(line, font, ismath=False)[:2] for line in text.splitlines()]
    wide = max((width for width, _ in lines), default=0)
    high = sum(height for _, height in lines) * (LEADING if len(lines) > 1 else 1)
    return wide + renderer.points_to_pixels(MARGIN) <= abs(x1 - x0) and high <= abs(y1 - y0)


def measure(axis, most, units, name):
    """Use the unit in which ``most`` is 1 or more, and label the axis with it. ``units``: SECONDS or BYTES."""
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
