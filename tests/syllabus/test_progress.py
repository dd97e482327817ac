"""The reader's progress: where it is kept, and what a damaged file says."""

import errno
import json
import os
import threading
from pathlib import Path

import pytest
from lab.mini import note

from tinydist.syllabus import atomic_files, progress


@pytest.fixture(autouse=True)
def nobody(monkeypatch, tmp_path):
    monkeypatch.delenv("TINYDIST_PROGRESS", raising=False)
    monkeypatch.setattr(progress, "_of_this_process", {})
    monkeypatch.chdir(tmp_path)


def test_kept_in_the_folder_of_the_exercises(tmp_path, monkeypatch):
    (tmp_path / "exercises").mkdir()
    note("ring", tries=1)
    monkeypatch.chdir("exercises")
    note("ring", passed=True)
    kept = json.loads((tmp_path / "exercises" / "progress.json").read_text())
    assert kept == {"ring": {"passed": True, "tries": 1, "hints": 0}}
    assert [path.name for path in (tmp_path / "exercises").iterdir()] == ["progress.json"]


def test_the_variable_names_another_file(tmp_path, monkeypatch):
    (tmp_path / "exercises").mkdir()
    monkeypatch.setenv("TINYDIST_PROGRESS", str(tmp_path / "other.json"))
    note("ring", hints=2)
    assert progress.load()["ring"]["hints"] == 2 and (tmp_path / "other.json").exists()
    assert list((tmp_path / "exercises").iterdir()) == []


def test_elsewhere_it_lasts_as_long_as_the_process(tmp_path):
    note("ring", hints=1)
    assert progress.load()["ring"] == {"passed": False, "tries": 0, "hints": 1}
    assert list(tmp_path.iterdir()) == []


def test_forgotten(tmp_path):
    (tmp_path / "exercises").mkdir()
    note("ring", tries=1)
    note("tree", tries=2)
    progress.forget("ring")
    progress.forget("never there")
    assert list(progress.load()) == ["tree"]


@pytest.mark.parametrize("text", ["{", "[]", '{"ring": 1}', '{"ring": {"passed": true}}', "\x00\xff"])
def test_a_damaged_file_says_what_to_do_and_is_set_aside(tmp_path, monkeypatch, text):
    path = tmp_path / "progress.json"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setenv("TINYDIST_PROGRESS", str(path))
    with pytest.raises(
        progress.DamagedProgress, match=r"progress.json cannot be read .* -m tinydist reset NAME, which"
    ):
        note("ring", tries=1)
    assert path.read_text(encoding="utf-8") == text
    aside = progress.forget("ring")
    assert aside.read_text(encoding="utf-8") == text and aside.name == "progress.json.damaged"
    note("ring", tries=1)
    assert progress.load()["ring"]["tries"] == 1 and progress.forget("ring") is None


@pytest.mark.parametrize("fails", ["chmod", "replace"])
def test_written_whole_or_not_at_all(tmp_path, monkeypatch, fails):
    path = tmp_path / "progress.json"
    path.write_text("{}")
    monkeypatch.setenv("TINYDIST_PROGRESS", str(path))
    monkeypatch.setattr(atomic_files.os, fails, no_space)
    with pytest.raises(progress.ProgressError, match=r"progress.json cannot be written \(No space left on device\)"):
        note("ring", tries=1)
    assert path.read_text() == "{}" and list(tmp_path.iterdir()) == [path]


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_cannot_be_written_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYDIST_PROGRESS", str(tmp_path / "not there" / "progress.json"))
    with pytest.raises(progress.ProgressError, match=r"progress.json cannot be written \(No such file or directory\)"):
        note("ring", tries=1)
    monkeypatch.setenv("TINYDIST_PROGRESS", str(tmp_path))
    with pytest.raises(progress.ProgressError, match=r"cannot be read \(Is a directory\)"):
        progress.load()["ring"]


def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "progress.json"
    path.write_text("{}")
    path.chmod(0o444)
    if os.access(path, os.W_OK):
        monkeypatch.setattr(Path, "open", lambda *_: no_permission())  # the user may do everything
    monkeypatch.setenv("TINYDIST_PROGRESS", str(path))
    monkeypatch.setattr(progress, "load", dict)
    with pytest.raises(progress.ProgressError, match=r"progress.json cannot be written \(Permission denied\)"):
        note("ring", tries=1)
    assert list(tmp_path.iterdir()) == [path]


def no_permission():
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_two_writers_lose_nothing(tmp_path, monkeypatch):
    path = tmp_path / "progress.json"
    monkeypatch.setenv("TINYDIST_PROGRESS", str(path))
    writers = [threading.Thread(target=try_often, args=(name,)) for name in ("ring", "ring", "tree")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert {name: entry["tries"] for name, entry in progress.load().items()} == {"ring": 40, "tree": 20}
    assert list(tmp_path.iterdir()) == [path]


def try_often(name):
    for _ in range(20):
        with progress.entry(name) as entry:
            entry["tries"] += 1
