"""The course in a folder of the reader's own."""

from lab.mini import note
from lab.shipped import ROOT

from tinydist.__main__ import main
from tinydist.lab import find, progress
from tinydist.lab.copied import FOLDERS


def names(folder):
    return {path.relative_to(folder).as_posix() for name in FOLDERS for path in (folder / name).rglob("*.ipynb")}


def test_the_course_is_copied_whole_and_is_then_the_readers_own(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("TINYDIST_PROGRESS", raising=False)
    mine = tmp_path / "my course"
    assert main(["copy-course", str(mine)]) == 0 and f"The course is in {mine}." in capsys.readouterr().out
    assert names(mine) == {name for name in names(ROOT) if "checkpoint" not in name}
    monkeypatch.chdir(mine)
    assert find.root() == mine / "solutions" and progress.load() == {}
    note("average_uneven", passed=True)
    assert main(["next"]) == 0 and capsys.readouterr().out.startswith("Next: mended_loop, ")
    assert main(["copy-course", "."]) == 1
    assert capsys.readouterr().out == "notebooks is there already, and may be yours: name another folder\n"


def test_a_folder_that_cannot_be_written_is_told(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["copy-course", str(tmp_path / "file")]) == 1
    assert "file cannot be written (" in capsys.readouterr().out
