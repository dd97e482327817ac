"""What writes the site: that everything is on it, and what becomes of pictures, explorers, links and docstrings."""

import base64
import json
import re
from itertools import pairwise
from math import prod
from types import SimpleNamespace

import explorers
import graph
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pages
import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from ipywidgets import FloatText, IntSlider
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image
from test_notebooks import ROOT

from tinydist.collectives import Cost
from tinydist.syllabus.chapter_map import names_and_arrows
from tinydist.visuals import Explorer
from tinydist.visuals.figure import mimebundle
from tinydist.visuals.palette import INK, PAPER


def cells_of(*folders):
    for path in sorted(path for folder in folders for path in (ROOT / folder).glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            yield path, cell


# All is there.


def test_every_notebook_and_every_exercise_is_in_the_contents_and_no_solution():
    found = re.findall(r"<(\S+)>", pages.contents())
    paths = [path for folder in ("notebooks", "exercises") for path in (ROOT / folder).glob("*.ipynb")]
    there = [path.relative_to(ROOT).with_suffix("").as_posix() for path in paths]
    assert sorted(found) == sorted([*there, "reference/index"])


def test_every_part_of_the_library_has_a_page_with_what_it_offers():
    assert set(reference.parts()) == {path.stem for path in (ROOT / "tinydist").iterdir() if path.name[0] not in "_."}
    page = reference.page_of("collectives")
    assert page.startswith("# tinydist.collectives\n") and "\n## tinydist.collectives.ring\n" in page
    assert page.count("automodule") == page.count(":members:") == 1 + page.count("\n## ")


def test_every_file_that_a_notebook_leads_to_has_a_page():
    assert {"tinydist/model/gpt.py", "examples/README.md"} <= reference.linked()
    assert [name for name in reference.linked() if not (ROOT / name).is_file()] == []
    assert "literalinclude} /../tinydist/model/gpt.py\n:language: py\n" in reference.source_of("tinydist/model/gpt.py")
    assert "\n# The same step in five systems\n" in reference.source_of("examples/README.md")


def test_no_notebook_leads_to_a_file_that_the_site_goes_without():
    texts = [cell.source for _, cell in cells_of("notebooks") if cell.cell_type == "markdown"]
    led = {link for text in texts for link in re.findall(r"\]\((\.\./[^)]+)\)", text)}
    there = {f"../{name}" for name in reference.linked()}
    assert {link for link in led if not link.startswith("../exercises/")} == there


def test_nothing_that_we_add_is_fetched_from_elsewhere():
    files = [*ROOT.glob("site/*.py"), *ROOT.glob("site/static/*")]
    assert len(files) > 5
    assert [file.name for file in files if re.search(r"https?://|//cdn", file.read_text())] == []


@pytest.mark.parametrize("folder", ["notebooks", "exercises", "site"])
def test_no_text_has_formulas_for_mathjax_which_the_site_goes_without(folder):
    texts = [cell.source for _, cell in cells_of(folder) if cell.cell_type == "markdown"]
    assert [text for text in texts if re.search(r"\$\$|\\\(|\\\[|\\begin\{", re.sub(r"`[^`]*`", "", text))] == []


# What Sphinx reads in place of a notebook.


@pytest.fixture
def prepared(tmp_path):
    """A function: the cells of a page, of those of a notebook."""

    def prepare(*cells, docname="notebooks/some"):
        source = [nbformat.writes(new_notebook(cells=list(cells)))]
        env = SimpleNamespace(note_dependency=prepare.needs.append)
        app = SimpleNamespace(outdir=tmp_path, env=env, config=SimpleNamespace(root_doc="index"))
        pages.prepare(app, docname, source)
        return nbformat.reads(source[0], as_version=4).cells

    prepare.needs = []
    return prepare


@pytest.fixture(scope="module")
def bundle():
    figure = plt.figure(figsize=(1, 0.5))
    figure.alt = 'Black, "and" white.'
    figure.text(0.1, 0.2, "X", fontsize=20)
    found = mimebundle(figure)
    plt.close(figure)
    return found


def test_a_picture_is_there_for_both_themes(prepared, bundle, tmp_path):
    data, metadata = bundle
    (cell,) = prepared(new_code_cell(outputs=[new_output("display_data", data=data, metadata=metadata)]))
    images = re.findall(r'<img class="only-(\w+)" src="\.\./(\S+)" alt="([^"]+)" width="100" height="50"', shown(cell))
    assert [theme for theme, _, _ in images] == ["light", "dark"]
    assert {alt for _, _, alt in images} == {"Black, &quot;and&quot; white."}
    light, dark = (Image.open(tmp_path / src).convert("RGB") for _, src, _ in images)
    assert (tmp_path / images[0][1]).read_bytes() == base64.b64decode(data["image/png"])
    assert light.getpixel((3, 3)) == rgb(PAPER) and dark.getpixel((3, 3)) == rgb(INK)
    assert np.array(dark).max() > 250  # what was written dark


def shown(cell):
    ((output,),) = [cell.outputs]
    return output.data["text/html"]


def rgb(color):
    return tuple(bytes.fromhex(color[1:]))


def test_links_lead_to_pages(prepared):
    text = "[a](00_start_here.ipynb) [b](../exercises/x.ipynb) [c](../tinydist/model/gpt.py) [d](https://a.b/c.ipynb)"
    output = new_output("display_data", data={"text/markdown": "[e](../exercises/x.ipynb)"})
    cell, code = prepared(new_markdown_cell(text), new_code_cell(outputs=[output]))
    pages_of = re.findall(r"\]\(page:(\S+?)\)", cell.source)
    assert pages_of == ["00_start_here.html", "../exercises/x.html", "../reference/source/tinydist/model/gpt.py.html"]
    assert cell.source.endswith("(https://a.b/c.ipynb)")
    assert code.outputs[0].data["text/markdown"] == "[e](page:../exercises/x.html)"


def test_the_first_page_has_the_contents_and_no_other_has(prepared):
    assert "toctree" in prepared(new_markdown_cell("A"), docname="index")[-1].source
    assert len(prepared(new_markdown_cell("A"))) == 1


# Explorers.


def test_a_grid_has_what_the_explorer_shows_at_each_position():
    def draw(ranks, kind, other):
        plt.subplots(figsize=(1, ranks))
        print(ranks, kind, other)

    explorer = Explorer(draw, ranks=IntSlider(2, 1, 3), kind={"a": False, "b": True}, other=FloatText(0.5))
    grid = explorers.grid(explorer)
    assert [(each["name"], each["labels"], each["first"], each["slider"]) for each in grid["controls"]] == [
        ("ranks", ["1", "2", "3"], 1, True),
        ("kind", ["a", "b"], 0, False),
        ("other", ["0.5"], 0, False),
    ]
    assert [text for _, _, text in grid["shown"]] == [f"{n} {kind} 0.5" for n in (1, 2, 3) for kind in (False, True)]
    assert [picture for picture, _, _ in grid["shown"]] == [0, 0, 1, 1, 2, 2]  # each is stored once
    png, width, height = grid["pictures"][1]
    assert (base64.b64decode(png), width, height) == (explorer.image.value, 100, 200)


def test_a_position_that_has_no_picture_says_why():
    def draw(ranks):
        raise ValueError("no ranks")

    explorer = Explorer(lambda ranks: None, ranks=[1])
    explorer.draw = draw
    assert explorers.grid(explorer)["shown"] == [[None, "", "ValueError: no ranks"]]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=5), st.data())
def test_controls_have_as_many_positions_as_there_is_room_for(lengths, data):
    kept = [data.draw(st.integers(0, length - 1)) for length in lengths]
    found = explorers.thinned([range(length) for length in lengths], kept)
    assert prod(map(len, found)) <= explorers.MOST
    for length, keep, positions in zip(lengths, kept, found):
        assert keep in positions and all(a < b for a, b in pairwise(positions))
        assert len(positions) == length or len(positions) >= 2


def test_every_explorer_of_a_notebook_finds_its_grid(prepared, bundle, tmp_path, monkeypatch):
    data, metadata = bundle
    grids = [{"controls": [], "shown": [[0, "", each]], "pictures": [[data["image/png"], 9, 9]]} for each in "a<"]
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "some.json").write_text(json.dumps(grids))
    monkeypatch.setattr(pages, "GRIDS", tmp_path)
    widget = data | {explorers.WIDGET: {}, "text/plain": "Explorer(x=1)\nwhat it says"}
    cells = prepared(*[new_code_cell(outputs=[new_output("display_data", widget, metadata=metadata)]) for _ in grids])
    stored = [json.loads(re.search(r"json\">(.*)</script>", shown(cell))[1])["shown"] for cell in cells]
    assert stored == [[[0, "", "a"]], [[0, "", "<"]]]
    assert "<pre>what it says</pre>" in shown(cells[0])
    assert str(tmp_path / "notebooks" / "some.json") in prepared.needs  # if that changes, the page is written anew


# The map.


def test_the_map_has_a_box_for_each_chapter_and_each_arrow_goes_down():
    names, arrows = names_and_arrows()
    rows, paths = graph.placed(names, arrows)
    row_of = {each: n for n, row in enumerate(rows) for each in row}
    assert sorted(each for row in rows for each in row if isinstance(each, str)) == sorted(names)
    assert all(row_of[below] == row_of[above] + 1 for path in paths for above, below in pairwise(path))
    assert [(path[0], path[-1]) for path in paths] == arrows
    assert all((ROOT / "notebooks" / pages.page_of(name)).with_suffix(".ipynb").exists() for name in names.values())
    drawn = graph.drawn(names, arrows, pages.page_of)
    assert drawn.count("<a href=") == len(names) and drawn.count("<path") == len(arrows)


# Docstrings.


@pytest.mark.parametrize("thing, left_out", [(Cost.sent, True), (Cost.then, False), (torch.sum, True)])
def test_the_reference_leaves_out_what_says_nothing_or_is_of_others(thing, left_out):
    assert bool(reference.is_of_others(None, "class", "name", thing, False, {})) == left_out


def test_a_docstring_keeps_its_tables_and_its_bars():
    lines = ["The mean |x| of ``|y|``.", "", "| a table | |", "|---|---|", "| of a row | |"]
    reference.as_rst(None, "function", "f", None, {}, lines)
    table = [".. code-block:: none", "", "   | a table | |", "   |---|---|", "   | of a row | |", ""]
    assert lines == ["The mean \\|x\\| of ``|y|``.", "", *table]


def test_a_docstring_keeps_its_paragraphs_its_names_and_its_code():
    lines = """What it does with ``x_`` and *args.

x:      the first,
        which goes on
*rest:  others

    code(here)

    one --> another

    one.py     a file""".splitlines()
    reference.as_rst(None, "function", "f", None, {}, lines)
    assert lines == [
        "What it does with ``x_`` and \\*args.",
        "",
        ":x: the first,",
        "   which goes on",
        ":rest: others",
        "",
        ".. code-block:: python",
        "",
        "   code(here)",
        "",
        ".. code-block:: none",
        "",
        "   one --> another",
        "",
        ":one.py: a file",
        "",
    ]
