"""The map's table: what is done in each chapter, wherever the notebook runs that shows it."""

import json
from pathlib import Path

import pytest
from lab.mini import note

from tinydist.syllabus.progress_summary import Overview
from tinydist.syllabus.registry import chapters, of_chapter


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """What has passed is noted."""

    def has_done(*names):
        done = {name: {"passed": True, "tries": 1, "hints": 0} for name in names}
        (tmp_path / "progress.json").write_text(json.dumps(done))

    monkeypatch.setenv("TINYDIST_PROGRESS", str(tmp_path / "progress.json"))
    return has_done


def rows():
    return {chapter: others for chapter, *others in Overview().rows}


def test_a_chapter_that_is_not_begun_names_its_first_exercise(reader):
    assert list(rows()) == chapters()
    assert rows()["00_start_here"] == ["○○○", "average_uneven, 5 minutes"]


def test_what_is_done_is_marked_and_the_next_is_the_first_that_is_not(reader):
    reader("average_uneven", "settings_in_effect")
    assert rows()["00_start_here"] == ["●○●", "mended_loop, 15 minutes"]


def test_a_chapter_ends(reader):
    reader(*(each.name for each in of_chapter("00_start_here")))
    assert rows()["00_start_here"] == ["●●●", "all done"]
    assert "| [00_start_here](../exercises/00_start_here.ipynb) | ●●● | all done |" in Overview()._repr_markdown_()
    assert {line.index(dots) for line, (_, dots, _) in zip(repr(Overview()).splitlines(), Overview().rows)} == {28}
    assert "00_start_here               ●●●    all done\n" in repr(Overview())


def test_from_the_folder_of_the_notebooks_the_readers_own_progress_is_found(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "exercises").mkdir()
    monkeypatch.delenv("TINYDIST_PROGRESS", raising=False)
    monkeypatch.chdir(tmp_path)
    note("average_uneven", passed=True)
    monkeypatch.chdir("notebooks")
    assert rows()["00_start_here"][0] == "●○○" and Path.cwd() == tmp_path / "notebooks"
