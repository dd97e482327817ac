"""What a chapter's prose promises, its notebook holds: its sections, and the colors and shapes of its pictures.

The opening says "in nine sections", and their headings are numbered: a lost one leaves a gap, or too few. Text after
a picture names only colors and shapes that the picture has (tinydist/visuals/contents.py stores them with it).
"""

import re
from base64 import b64decode, b64encode
from io import BytesIO
from itertools import groupby
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

from tinydist.visuals.contents import color_name

ROOT = Path(__file__).parent.parent
CHAPTERS = sorted(path.relative_to(ROOT) for path in ROOT.glob("notebooks/[0-9]*.ipynb"))
WORDS = ["none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
END = "What to remember"
COLORS = {"gray": "grey", "pink": "purple", "violet": "purple"} | {
    name: name for name in ("black", "white", "grey", "red", "orange", "yellow", "green", "blue", "purple")
}
SHAPES = {name: name for name in ("dashed", "dotted", "bar", "circle", "diamond", "arrow")}  # masks are triangles
NAMED = re.compile(rf"\b({'|'.join(COLORS | SHAPES)})s?\b", re.IGNORECASE)
SEEN = 200  # pixels of a color in a picture without its list; one of black text has edges of any grey


def headings(notebook):
    """Of the second level, outside of blocks of code."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return re.findall(r"^## (.*)", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)


def opening(notebook):
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return re.split(r"^## ", text, maxsplit=1, flags=re.MULTILINE)[0]


def lost_sections(notebook):
    numbers = [int(number) for heading in headings(notebook) for number in re.findall(r"^(\d+)\. ", heading)]
    promised = re.search(r"\bin\s+(\w+)\s+sections\b", opening(notebook))
    if promised is None:
        yield "its opening does not say in how many sections it is"
    elif numbers != list(range(1, WORDS.index(promised[1]) + 1)):
        yield f"its opening promises {promised[1]} sections, and its headings have the numbers {numbers}"
    if END not in headings(notebook):
        yield f"it has no heading {END!r}"


def missing_in_pictures(notebook):
    """Colors and shapes that the text after a picture names, up to a heading, and no picture around the text has."""
    groups = [list(cells) for _, cells in groupby(notebook.cells, lambda cell: cell.cell_type)]
    for above, text, below in zip(groups, groups[1:], [*groups[2:], []]):
        pictures = pictures_of(above) + pictures_of(below)
        for word in named(text[0].source) if pictures_of(above) else ():
            if not any(has(picture, word) for picture in pictures):
                yield f"{word!r} is in no picture around it: {text[0].source[:60]!r}"


def pictures_of(cells):
    return [output for cell in cells for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})]


def named(text):
    about = re.sub(r"`[^`]*`", "", re.split(r"^#+ ", text, maxsplit=1, flags=re.MULTILINE)[0])
    return sorted({(COLORS | SHAPES)[word.lower()] for word in NAMED.findall(about)})


def has(picture, word):
    stored = picture.metadata.get("image/png", {}).get("drawn")
    if stored is not None:
        return word in stored
    return word in SHAPES or word in colors_of(picture.data["image/png"])


def colors_of(png):
    image = Image.open(BytesIO(b64decode(png))).convert("RGB")
    counts = {"black": SEEN, "white": SEEN, "grey": SEEN}
    for count, color in image.getcolors(image.width * image.height):
        name = color_name([channel / 255 for channel in color])
        counts[name] = counts.get(name, 0) + count
    return {name for name, count in counts.items() if count >= SEEN}


def read(path):
    return nbformat.read(ROOT / path, as_version=4)


@pytest.mark.parametrize("path", CHAPTERS, ids=str)
def test_the_promised_sections_are_there(path):
    assert list(lost_sections(read(path))) == []


@pytest.mark.parametrize("path", CHAPTERS, ids=str)
def test_what_prose_says_of_a_picture_is_in_it(path):
    assert list(missing_in_pictures(read(path))) == []


# Each can fail: a good notebook, broken in one place.


def good_notebook():
    cells = [
        new_markdown_cell("# A chapter\n\nIt takes an hour, in\ntwo sections.\n\n## 1. One\n\nA white paper."),
        new_code_cell("figure", outputs=[picture(["bar", "dashed", "red"])]),
        new_markdown_cell("The Red bars end at the dashed line; `grey` does not.\n\n### More\n\nNext, green."),
        new_markdown_cell("## 2. Two\n\n```bash\n## 3. a comment\n```\n\n## What to remember\n\nNo arrows."),
    ]
    return new_notebook(cells=cells)


def picture(drawn):
    return new_output("display_data", {"image/png": ""}, metadata={"image/png": {"drawn": drawn}})


def disorder(cells):
    one, two = cells[0], cells[3]
    one.source, two.source = one.source.replace("1. One", "2. Two"), two.source.replace("2. Two", "1. One")


LOST = [
    ("its headings have the numbers [1]", lambda cells: cells.pop()),
    ("its headings have the numbers [1]", lambda cells: cells[3].update(source="Two\n\n## What to remember")),
    ("its headings have the numbers [2]", lambda cells: cells[0].update(source="In short, in two sections.")),
    ("its headings have the numbers [2, 1]", disorder),
    ("it has no heading 'What to remember'", lambda cells: cells[3].update(source="## 2. Two")),
    ("in how many sections", lambda cells: cells[0].update(source="# A chapter\n\n## 1. One")),
]
ABSENT = [
    ("'red' is in no picture around it", lambda cells: cells[1].update(outputs=[picture(["bar", "dashed"])])),
    ("'bar' is in no picture around it", lambda cells: cells[1].update(outputs=[picture(["red", "dashed"])])),
    ("'purple' is in no picture around it", lambda cells: cells[2].update(source="The pink one.")),
    ("'grey' is in no picture around it", lambda cells: cells[2].update(source="The gray one.")),
]


def test_a_good_notebook_has_all():
    assert [*lost_sections(good_notebook()), *missing_in_pictures(good_notebook())] == []


@pytest.mark.parametrize("fault, break_it", LOST)
def test_a_lost_heading_is_seen(fault, break_it):
    notebook = good_notebook()
    break_it(notebook.cells)
    assert any(fault in found for found in lost_sections(notebook))


@pytest.mark.parametrize("fault, break_it", ABSENT)
def test_a_color_that_a_picture_lacks_is_seen(fault, break_it):
    notebook = good_notebook()
    break_it(notebook.cells)
    (found,) = missing_in_pictures(notebook)
    assert fault in found


def test_a_picture_without_a_list_is_looked_at():
    small = BytesIO()
    Image.new("RGB", (20, 20), "#E69F00").save(small, "png")
    assert colors_of(b64encode(small.getvalue())) == {"orange", "black", "white", "grey"}
