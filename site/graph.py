"""A graph of Mermaid's, `A["a name"] --> B["another"]`, as an SVG in the page: its boxes are links.

Boxes stand in rows, each below all that it needs. A longer arrow has a place in each row that it passes.
"""

import re
from html import escape
from itertools import pairwise, permutations

BOX, PASSING, HIGH, APART, BETWEEN = 130, 8, 32, 14, 30  # pixels: widths, a box's height, from one to the next, of rows


def read(text):
    """Names by key, and arrows."""
    names = dict(re.findall(r'(\w+)\["([^"]+)"\]', text))
    arrows = re.findall(r"^\s*(\w+)(?:\[.*?\])? --> (\w+)", text, re.MULTILINE)
    return names, arrows


def drawn(text, href_of):
    names, arrows = read(text)
    rows, paths = placed(names, arrows)
    width = max(map(width_of, rows)) + 4
    at = {each: (x + width / 2, 2 + n * (HIGH + BETWEEN)) for n, row in enumerate(rows) for each, x in places(row)}
    lines = [curve([at[each] for each in path]) for path in paths]
    boxes = [box(*at[key], name, href_of(name)) for key, name in names.items()]
    height = len(rows) * (HIGH + BETWEEN) - BETWEEN + 4
    view = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg class="graph" {view} aria-label="Which chapter needs which">{"".join(lines + boxes)}</svg>'


def placed(names, arrows):
    """Rows of keys, and of numbers of arrows that pass; and each arrow as the row of what it goes through."""
    depth = dict.fromkeys(names, 0)
    for _ in names:
        for above, below in arrows:
            depth[below] = max(depth[below], depth[above] + 1)
    rows = [[key for key in names if depth[key] == row] for row in range(1 + max(depth.values()))]
    paths = []
    for number, (above, below) in enumerate(arrows):
        passed = [(number, row) for row in range(depth[above] + 1, depth[below])]
        paths.append([above, *passed, below])
        for each in passed:
            rows[each[1]].append(each)
    steps = [step for path in paths for step in pairwise(path)]
    best, length = rows, float("inf")
    while (now := length_of(best, steps)) < length:
        length = now
        for n, row in enumerate(best):
            orders = ([*best[:n], list(order), *best[n + 1 :]] for order in permutations(row))
            best = min(orders, key=lambda rows: length_of(rows, steps))
    return best, paths


def length_of(rows, steps):
    """How far the arrows go to the side."""
    at = {each: x for row in rows for each, x in places(row)}
    return sum(abs(at[above] - at[below]) for above, below in steps)


def width_of(row):
    return sum(BOX if isinstance(each, str) else PASSING for each in row) + APART * (len(row) - 1)


def places(row):
    """Each with its middle, from the middle of the row."""
    left = -width_of(row) / 2
    for each in row:
        wide = BOX if isinstance(each, str) else PASSING
        yield each, left + wide / 2
        left += wide + APART


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
