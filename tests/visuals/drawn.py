"""What a picture shows: its texts, where they stand, and what is wrong with them.

A text is one that is really drawn: no tick beyond the axis, nothing invisible or empty.
"""

from itertools import combinations
from unittest.mock import patch

from matplotlib.colors import to_rgb
from matplotlib.text import Text

from tinydist.visuals.figure import SMALL

TOUCH = 0.5  # pixels that boxes may share


def texts(figure):
    """(text, bounding box in pixels) of all that is written."""
    found = []
    draw = Text.draw

    def see(text, renderer):
        if text.get_visible() and text.get_text().strip():
            found.append((text, Text.get_window_extent(text, renderer)))  # of an annotation without its arrow
        return draw(text, renderer)

    with patch.object(Text, "draw", see):
        figure.draw_without_rendering()
    return found


def written(figure):
    return [text.get_text() for text, _ in texts(figure)]


def faults(figure):
    """What a reader would trip over, in words: texts that overlap, are cut off, or too small; no alt text."""
    seen = texts(figure)
    width, height = figure.bbox.size
    for (one, a), (other, b) in combinations(seen, 2):
        if min(a.x1, b.x1) - max(a.x0, b.x0) > TOUCH and min(a.y1, b.y1) - max(a.y0, b.y0) > TOUCH:
            yield f"{one.get_text()!r} overlaps {other.get_text()!r}"
    for text, box in seen:
        if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height:
            yield f"{text.get_text()!r} is cut off"
        if text.get_fontsize() < SMALL:
            yield f"{text.get_text()!r} has {text.get_fontsize():g} points"
    if not (figure.alt.endswith(".") and len(figure.alt.split()) > 4):
        yield f"its alt text is no sentence: {figure.alt!r}"


def assert_can_be_read(figure):
    assert list(faults(figure)) == []


def lightness(color):
    """How light it is in grey, 0 to 1."""
    red, green, blue = to_rgb(color)
    return 0.299 * red + 0.587 * green + 0.114 * blue
