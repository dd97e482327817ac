"""The map's table: what is done in each chapter, wherever the notebook runs that shows it."""

import json

import pytest

from tinydist.lab import find
from tinydist.lab.exercise import chapters, of_chapter
from tinydist.lab.overview import Overview


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """A folder of notebooks beside the reader's exercises; the exercises themselves are ours."""
    monkeypatch.delenv("TINYDIST_PROGRESS", raising=False)
    (tmp_path / "exercises").mkdir()
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "solutions").symlink_to(find.root())
    monkeypatch.setattr(find, "root", lambda: tmp_path / "solutions")
    monkeypatch.chdir(tmp_path / "notebooks")
    return tmp_path


def rows():
    return {chapter: others for chapter, *others in Overview().rows}


def test_a_chapter_that_is_not_begun_names_its_first_exercise(reader):
    assert list(rows()) == chapters()
    assert rows()["00_start_here"] == ["○○○", "average_uneven, 5 minutes"]


def test_what_is_done_is_marked_and_the_next_is_the_first_that_is_not(reader):
    done = {name: {"passed": name != "mended_loop", "tries": 1, "hints": 0} for name in find.names_of("00_start_here")}
    (reader / "exercises" / "progress.json").write_text(json.dumps(done))
    assert rows()["00_start_here"] == ["●○●", "mended_loop, 15 minutes"]


def test_a_chapter_ends(reader):
    done = {each.name: {"passed": True, "tries": 1, "hints": 0} for each in of_chapter("00_start_here")}
    (reader / "exercises" / "progress.json").write_text(json.dumps(done))
    assert rows()["00_start_here"] == ["●●●", "all done"]
    assert "| [00_start_here](../exercises/00_start_here.ipynb) | ●●● | all done |" in Overview()._repr_markdown_()
    assert "00_start_here            ●●●    all done\n" in repr(Overview())
