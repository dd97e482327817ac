"""The reader's progress: where it is kept, and what a damaged file says."""

import json

import pytest

from tinydist.lab import progress


@pytest.fixture(autouse=True)
def nobody(monkeypatch, tmp_path):
    monkeypatch.delenv("TINYDIST_PROGRESS", raising=False)
    monkeypatch.setattr(progress, "_of_this_process", {})
    monkeypatch.chdir(tmp_path)


def test_kept_in_the_folder_of_the_exercises(tmp_path, monkeypatch):
    (tmp_path / "exercises").mkdir()
    progress.note("ring", tries=1)
    monkeypatch.chdir("exercises")
    progress.note("ring", passed=True)
    kept = json.loads((tmp_path / "exercises" / "progress.json").read_text())
    assert kept == {"ring": {"passed": True, "tries": 1, "hints": 0}}
    assert [path.name for path in (tmp_path / "exercises").iterdir()] == ["progress.json"]


def test_the_variable_names_another_file(tmp_path, monkeypatch):
    (tmp_path / "exercises").mkdir()
    monkeypatch.setenv("TINYDIST_PROGRESS", str(tmp_path / "other.json"))
    progress.note("ring", hints=2)
    assert progress.of("ring")["hints"] == 2 and (tmp_path / "other.json").exists()
    assert list((tmp_path / "exercises").iterdir()) == []


def test_elsewhere_it_lasts_as_long_as_the_process(tmp_path):
    progress.note("ring", hints=1)
    assert progress.of("ring") == {"passed": False, "tries": 0, "hints": 1}
    assert list(tmp_path.iterdir()) == []


def test_forgotten(tmp_path):
    (tmp_path / "exercises").mkdir()
    progress.note("ring", tries=1)
    progress.note("tree", tries=2)
    progress.forget("ring")
    progress.forget("never there")
    assert list(progress.load()) == ["tree"]


@pytest.mark.parametrize("text", ["{", "[]", '{"ring": 1}', '{"ring": {"passed": true}}', "\x00\xff"])
def test_a_damaged_file_says_what_to_do(tmp_path, monkeypatch, text):
    path = tmp_path / "progress.json"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setenv("TINYDIST_PROGRESS", str(path))
    with pytest.raises(progress.DamagedProgress, match=r"progress.json cannot be read .* delete it and begin anew"):
        progress.note("ring", tries=1)
    assert path.read_text(encoding="utf-8") == text


def test_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "progress.json"
    path.write_text("{}")
    monkeypatch.setenv("TINYDIST_PROGRESS", str(path))

    def fails(*_):
        raise OSError("no space left")

    monkeypatch.setattr(progress.os, "replace", fails)
    with pytest.raises(OSError):
        progress.note("ring", tries=1)
    assert path.read_text() == "{}"
