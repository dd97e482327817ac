"""The page of names and flags: each row has a system whose version the page says, and the file where it was read."""

import re
from pathlib import Path

import nbformat
import pytest

PAGE = nbformat.read(Path(__file__).parent.parent / "notebooks" / "names.ipynb", as_version=4)
ORDER = "Data parallel, ZeRO, Tensor, Sequence, Pipeline, Context, Expert, Precision, Optimizer and learning rate"
TECHNIQUES = [*ORDER.split(", "), "Attention", "Checkpoint", "Launcher"]
HEAD = "| what | does | name, read in | default |"


def rows(text):
    lines = [line for line in text.split("\n") if line.startswith("|")]
    return [[each.strip() for each in line.strip("|").split("|")] for line in lines if not line.startswith("|---")]


def tables():
    """technique -> its rows"""
    found = {}
    for cell in PAGE.cells:
        title = re.match(r"## (.+)\n\n", cell.source)
        if title and HEAD in cell.source:
            found[title[1]] = rows(cell.source.split("\n\n")[1])[1:]
    return found


def test_techniques_are_in_order():
    assert [*tables()] == TECHNIQUES


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_each_row_has_a_system_with_a_version_and_a_file(technique):
    versions = {system for system, version, _ in rows(PAGE.cells[0].source)[1:] if version}
    for what, does, name, _ in tables()[technique]:
        assert re.fullmatch(rf"({'|'.join(versions)}): .+, [\w/]+\.py", name.replace("\\", "")), name
        assert len(does.split()) <= 5, does
        assert what or not does, name


def test_a_name_stands_there_once_for_a_system_in_a_technique():
    for technique, found in tables().items():
        names = [(what, name) for what, _, name, _ in found]
        assert len(names) == len(set(names)), technique
