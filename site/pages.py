"""What Sphinx reads in place of a notebook's file: pictures for both themes, explorers that move, links that lead."""

import base64
import io
import json
import re
from hashlib import sha256
from html import escape
from pathlib import Path

import graph
import nbformat
import numpy as np
from explorers import GRIDS, is_explorer
from nbformat.v4 import new_markdown_cell
from PIL import Image
from reference import TO_SOURCE

from tinydist.syllabus.chapter_map import names_and_arrows
from tinydist.visuals.palette import darkened

ROOT = Path(__file__).parent.parent
NAMED = re.compile(r"\[(\w+ [^\]]+)\]\((\w+)\.ipynb\)")  # in the map: a chapter, and its file
UNNAMED = "What the code above draws."


def prepare(app, docname, source):
    if docname.startswith("reference/"):
        return
    for path in filter(Path.exists, [GRIDS / f"{docname}.json", *Path(__file__).parent.glob("*.py")]):
        app.env.note_dependency(str(path))  # a page is written anew when one of them has changed
    notebook = nbformat.reads(source[0], as_version=4)
    up = "../" * docname.count("/")
    pictures = Pictures(Path(app.outdir) / "_pictures", up + "_pictures/")
    grids = iter(grids_of(docname))
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = for_the_site(cell.source)
        for output in cell.get("outputs", ()):
            if "text/markdown" in output.get("data", {}):
                output.data["text/markdown"] = for_the_site("".join(output.data["text/markdown"]))
            if cell.source.endswith("chapter_map()") and "image/png" in output.get("data", {}):
                output.data = {"text/html": graph.drawn(*names_and_arrows(), page_of)}  # its boxes are links
            elif "image/png" in output.get("data", {}):
                output.data = {"text/html": shown(output, pictures, grids)}
    if docname == app.config.root_doc:
        notebook.cells.append(new_markdown_cell(contents()))
    source[0] = nbformat.writes(notebook)


def finish(app, name, template, context, doctree):
    """Headings in the contents have a level, for who does not see it."""
    tree = context["furo_navigation_tree"]
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def for_the_site(text):
    text = TO_SOURCE.sub(r"](page:../reference/source/\1.html)", text)
    return re.sub(r"\]\((?!\w+:)(\S+)\.ipynb\)", r"](page:\1.html)", text)


def page_of(name):
    """Of a chapter, by the name in the map, which begins with its number."""
    (path,) = ROOT.glob(f"notebooks/{name.split()[0]}_*.ipynb")
    return f"{path.stem}.html"


# Pictures.


class Pictures:
    """Files of pictures, each once, light and dark. ``url``: of their folder, for the page."""

    def __init__(self, folder, url):
        self.folder, self.url = folder, url
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, data):
        """The name of a PNG's files, without their suffixes."""
        png = base64.b64decode(data)
        name = sha256(png).hexdigest()[:16]
        if not (self.folder / f"{name}.png").exists():
            (self.folder / f"{name}-dark.png").write_bytes(dark(png))
            (self.folder / f"{name}.png").write_bytes(png)
        return name


def dark(png):
    """The same for a dark page: other colors in its palette."""
    image, changed = Image.open(io.BytesIO(png)), io.BytesIO()
    colors = np.array(image.getpalette(), dtype=float).reshape(-1, 3) / 255
    image.putpalette((255 * darkened(colors)).round().astype("uint8").tobytes())
    image.save(changed, format="png", optimize=True)
    return changed.getvalue()


def shown(output, pictures, grids):
    name, metadata = pictures.add(output.data["image/png"]), output.metadata.get("image/png", {})
    text = "".join(output.data.get("text/plain", ""))
    alt = metadata.get("alt") or UNNAMED
    size = f'width="{metadata["width"]}" height="{metadata["height"]}"' if "width" in metadata else ""
    images = "".join(
        f'<img class="only-{theme}" src="{pictures.url}{name}{end}.png" alt="{escape(alt)}" {size} loading="lazy">'
        for theme, end in (("light", ""), ("dark", "-dark"))
    )
    if not is_explorer(output):
        return f'<div class="picture">{images}</div>'
    said = text.partition("\n")[2]
    return f'<div class="explorer">{images}<pre>{escape(said)}</pre>{as_json(next(grids, None), pictures)}</div>'


def grids_of(docname):
    path = GRIDS / f"{docname}.json"
    return json.loads(path.read_text()) if path.exists() else []


def as_json(grid, pictures):
    """What explorer.js reads."""
    if grid is None:
        return ""
    files = [[pictures.add(png), width, height] for png, width, height in grid["pictures"]]
    data = json.dumps(grid | {"pictures": files, "url": pictures.url}).replace("<", r"\u003c")
    return f'<script type="application/json">{data}</script>'


# The contents, which stand beside each page.


def contents():
    """Every notebook, by its name in the map."""
    text = (ROOT / "notebooks" / "index.ipynb").read_text()
    names = {stem: name for name, stem in NAMED.findall(text)}
    chapters = [f"{names[stem]} <notebooks/{stem}>" for stem in stems("notebooks") if stem in names]
    exercises = [f"{names[stem]} <exercises/{stem}>" for stem in stems("exercises")]
    rest = [f"{stem.capitalize()} <notebooks/{stem}>" for stem in stems("notebooks") if stem not in names]
    rest[rest.index("Index <notebooks/index>")] = "The map <notebooks/index>"
    parts = {"Chapters": chapters, "Exercises": exercises, "To look up": [*rest[::-1], "Reference <reference/index>"]}
    return "\n\n".join(tree(caption, entries) for caption, entries in parts.items())


def stems(folder):
    return sorted(path.stem for path in (ROOT / folder).glob("*.ipynb"))


def tree(caption, entries):
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *entries, "```"])
