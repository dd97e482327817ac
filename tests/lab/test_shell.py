"""The course in a terminal, driven through a pseudo-terminal: what is typed, and what is on the screen by then."""

import shutil
import subprocess
import sys

import nbformat
import pytest
from lab.mini import note
from lab.shipped import EXERCISES, ROOT

if sys.platform != "linux":
    pytest.skip("its processes are forked from one that has loaded torch", allow_module_level=True)
from lab.terminal import Terminal

CHAPTER = "00_start_here"
FIRST, SECOND = "average_uneven", "mended_loop"


@pytest.fixture(autouse=True)
def reader(monkeypatch, tmp_path):
    """His notebook of the first chapter, in a folder of his own."""
    for name, value in {"TERM": "dumb", "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TINYDIST_PROGRESS", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exercises").mkdir()
    return shutil.copy(EXERCISES / f"{CHAPTER}.ipynb", tmp_path / "exercises")


def save(path, name, source):
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [cell for cell in notebook.cells if name in cell.metadata.get("tags", [])]
    cell.source = source
    nbformat.write(notebook, path)


def solution(name):
    cells = nbformat.read(ROOT / "solutions" / f"{CHAPTER}.ipynb", as_version=4).cells
    return next(cell.source for cell in cells if name in cell.metadata.get("tags", []))


def test_the_prompt_says_where_the_reader_is_and_next_goes_on():
    note(FIRST, passed=True)
    here = Terminal()
    shown = here.until(f"\n{SECOND}> ")
    assert f"{CHAPTER}                ●○○\n" in shown
    assert f"1 of 3 done. Here: {SECOND}, 15 minutes: Mend a training loop, in exercises/{CHAPTER}.ipynb" in shown
    assert "settings_in_effect, " in here.type("next\n", "\nsettings_in_effect> ")
    assert ". Here: settings_in_effect, " in here.type("where\n", "\nsettings_in_effect> ")
    assert "Next: mended_loop, " in here.type("next\n", f"\n{SECOND}> ")  # what is done is left out
    assert "reset   put the stub back" in here.type("nonsense\n", f"\n{SECOND}> ")
    assert "Hint" not in here.type("\n", f"\n{SECOND}> ")
    told = here.type("check average_unevn\n", f"\n{SECOND}> ")
    assert "there is no exercise 'average_unevn'. Did you mean average_uneven?" in told
    assert "  done average_uneven" in here.type("list\n", f"\n{SECOND}> ")
    assert here.end("quit\n") == 0


def test_ctrl_d_and_ctrl_c_leave_the_prompt():
    # An interrupt between the prompt and readline's wait for a key is noticed at the next key
    for keys in "\x04", "\x03\n":
        here = Terminal()
        here.until(f"\n{FIRST}> ")
        assert here.end(keys) == 0


def test_a_reader_checks_is_told_resets_and_watches(reader):
    here = Terminal()
    here.until(f"\n{FIRST}> ")
    assert f"{FIRST}: not yet" in here.type("check\n", f"\n{FIRST}> ")
    assert "Hint 1 of 3: " in here.type("hint\n", f"\n{FIRST}> ")
    save(reader, FIRST, f"def {FIRST}(gradient, sequences):\n    1 / 0")
    assert "What stood there:" in here.type("reset\n", f"\n{FIRST}> ")
    here.type("watch\n", "n next, h hint, q quit\n")
    save(reader, FIRST, f"def {FIRST}(gradient, sequences):\n    1 / 0")
    shown = here.until("n next, h hint, q quit\n")
    assert f"{FIRST}: wrong" in shown and "ZeroDivisionError" in shown and "●" not in shown
    save(reader, FIRST, solution(FIRST))
    shown = here.until("n next, h hint, q quit\n")
    assert f"{FIRST}: passed" in shown and f"\n{CHAPTER} ●○○  1 of 3 done\n" in shown
    shown = here.type("n", "q quit\n")
    assert f"Next: {SECOND}, 15 minutes" in shown and f"save it, and {SECOND} is checked" in shown
    assert "Hint 1 of" in here.type("h", "q quit\n")
    here.type("q", f"\n{SECOND}> ")  # where the reader was
    here.type("next\n", "\nsettings_in_effect> ")
    assert here.end("\x04") == 0


def test_watch_alone_stops_with_ctrl_c():
    here = Terminal("watch", FIRST)
    here.until("n next, h hint, q quit\n")
    assert here.end("\x03") == 0


@pytest.mark.parametrize("words", [["list"], ["next"], ["--help"]])
def test_where_the_reader_is_is_told_without_torch_and_without_nbformat(words):
    heavy = ("torch", "nbformat", "matplotlib", "IPython")
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({heavy}))\n"
        f"from tinydist.__main__ import main; sys.exit(main({words}))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (0, "") and (FIRST in told.stdout or "watch" in told.stdout)
