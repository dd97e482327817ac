"""What a figure draws, in words: its colors and shapes. Stored with a picture, so that a test can hold prose to it.

Axes, their ticks and grid, legends, and black text are left out: they are in every picture.
"""

from colorsys import rgb_to_hls

from matplotlib.collections import Collection, LineCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyArrowPatch, Patch, Rectangle
from matplotlib.text import Text

HUES = [(33, "red"), (49, "orange"), (80, "yellow"), (180, "green"), (260, "blue"), (345, "purple"), (360, "red")]
UNCOLORED, BLACK, WHITE = 0.07, 0.2, 0.97  # the largest saturation of a grey; lightness
MARKERS = {"o": "circle", "s": "square", "^": "triangle", "v": "triangle", "D": "diamond", "d": "diamond", "x": "cross"}


def drawn_in(figure):
    """Sorted words."""
    found = {word for axes in figure.axes for artist in axes.get_children() for word in words_of(axes, artist)}
    found |= {word for artist in [*figure.patches, *figure.lines] for word in words_of(figure, artist)}
    return sorted(found)


def color_name(color):
    """Of a color as the palette means it, tints included; None if it cannot be seen."""
    *rgb, alpha = to_rgba(color)
    hue, lightness, saturation = rgb_to_hls(*rgb)
    if alpha == 0:
        return None
    if max(rgb) - min(rgb) < UNCOLORED or saturation < UNCOLORED:
        return "black" if lightness < BLACK else "white" if lightness > WHITE else "grey"
    return next(name for end, name in HUES if 360 * hue <= end)


def words_of(parent, artist):
    background = artist in (getattr(parent, "patch", None), *getattr(parent, "spines", {}).values())
    if background or not artist.get_visible():
        return
    if isinstance(artist, Line2D):
        yield from line_words(artist)
    elif isinstance(artist, Patch):
        yield from patch_words(artist)
    elif isinstance(artist, Collection):
        yield from collection_words(artist)
    elif isinstance(artist, AxesImage):
        yield from color_words(artist.to_rgba(artist.get_array()).reshape(-1, 4))
    elif isinstance(artist, Text):
        yield from text_words(artist)


def line_words(line):
    if not len(line.get_xdata()):
        return
    yield from color_words([line.get_color()])
    if line.get_linestyle() == ":":
        yield "dotted"
    elif line.is_dashed():
        yield "dashed"
    if line.get_marker() in MARKERS:
        yield MARKERS[line.get_marker()]


def patch_words(patch):
    yield from color_words([patch.get_facecolor()])
    if patch.get_linewidth():
        yield from set(color_words([patch.get_edgecolor()])) - {"white"}
    for kind, word in [(Rectangle, "bar"), (Circle, "circle"), (FancyArrowPatch, "arrow")]:
        if isinstance(patch, kind):
            yield word


def collection_words(collection):
    if not collection.get_paths():
        return
    collection.update_scalarmappable()
    yield from color_words(collection.get_facecolor())
    yield from set(color_words(collection.get_edgecolor())) - {"white"}
    if isinstance(collection, PolyCollection):
        yield "bar"
    if isinstance(collection, LineCollection) and any(dashes for _, dashes in collection.get_linestyle()):
        yield "dashed"


def text_words(text):
    if text.get_text():
        yield from set(color_words([text.get_color()])) - {"black", "white"}
    arrow = getattr(text, "arrow_patch", None)
    if arrow:
        yield from color_words([arrow.get_edgecolor()])
        if ">" in str(text.arrowprops.get("arrowstyle", "->")):
            yield "arrow"


def color_words(colors):
    return {name for name in map(color_name, {tuple(to_rgba(color)) for color in colors}) if name}
