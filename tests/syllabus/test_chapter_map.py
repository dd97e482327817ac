"""The map has each chapter once, and the table below it says no less."""

import re
from pathlib import Path

from nbformat import read
from visuals.drawn import assert_can_be_read

from tinydist.syllabus.chapter_map import chapter_map, names_and_arrows

ROOT = Path(__file__).parent.parent.parent


def test_each_notebook_of_a_chapter_is_in_it():
    names, _ = names_and_arrows()
    assert list(names) == sorted(path.stem.split("_")[0] for path in ROOT.glob("notebooks/[0-9]*.ipynb"))


def test_it_can_be_read():
    assert_can_be_read(chapter_map())


def test_the_table_needs_what_arrows_lead_from_and_nothing_off_the_way():
    _, arrows = names_and_arrows()
    for number, needed in needed_by_table().items():
        direct = {source for source, target in arrows if target == number}
        assert direct <= needed <= before(number, arrows), f"{number}: the map has {direct}, the table {needed}"


def needed_by_table():
    """Number of a chapter -> numbers in its row's third column; "06 to 08" is 06, 07, 08."""
    (table,) = [cell.source for cell in read(ROOT / "notebooks/index.ipynb", 4).cells if cell.id == "index-table"]
    rows = re.findall(r"^\| \[(\w+) [^|]*\|[^|]*\| ([^|]*) \|", table, re.MULTILINE)
    return {number: set(numbers(needs)) for number, needs in rows}


def numbers(needs):
    for first, last in re.findall(r"(\d\d\w?)(?: to (\d\d))?", needs):
        yield from [f"{number:02d}" for number in range(int(first), int(last) + 1)] if last else [first]


def before(number, arrows):
    """All chapters from which arrows lead to it, on any way."""
    found = {source for source, target in arrows if target == number}
    return found.union(*(before(source, arrows) for source in found))


def test_the_table_has_each_chapter():
    assert list(needed_by_table()) == list(names_and_arrows()[0])
