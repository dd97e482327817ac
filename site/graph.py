"""The map of the chapters, as an SVG in the page: its boxes are links. What stands where: tinydist/visuals/graph.py."""

from html import escape
from itertools import pairwise

from tinydist.visuals.graph import BETWEEN, BOX, HIGH, placed, places, width_of


def drawn(names, arrows, href_of):
    rows, paths = placed(names, arrows)
    width = max(map(width_of, rows)) + 4
    at = {each: (x + width / 2, 2 + n * (HIGH + BETWEEN)) for n, row in enumerate(rows) for each, x in places(row)}
    lines = [curve([at[each] for each in path]) for path in paths]
    boxes = [box(*at[key], name, href_of(name)) for key, name in names.items()]
    height = len(rows) * (HIGH + BETWEEN) - BETWEEN + 4
    view = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg class="graph" {view} aria-label="Which chapter needs which">{"".join(lines + boxes)}</svg>'


def curve(points):
    d = f"M{points[0][0]:g},{points[0][1] + HIGH}"
    for (x, y), (to_x, to_y) in pairwise(points):
        half = (y + HIGH + to_y) / 2
        d += f" C{x:g},{half:g} {to_x:g},{half:g} {to_x:g},{to_y:g}"
        d += f" V{to_y + HIGH:g}" if (to_x, to_y) != points[-1] else ""
    return f'<path d="{d}"/>'


def box(x, y, name, href):
    rect = f'<rect x="{x - BOX / 2:g}" y="{y:g}" width="{BOX}" height="{HIGH}" rx="6"/>'
    return f'<a href="{href}">{rect}<text x="{x:g}" y="{y + HIGH / 2:g}">{escape(name)}</text></a>'
