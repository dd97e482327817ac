"""A command is written as it can be pasted where it is printed."""

import os
import sys

import pytest

from tinydist.console import command_name


@pytest.mark.parametrize(
    "python, here, on_path, written",
    [
        (".venv/bin/python", ".", None, ".venv/bin/python -m tinydist"),
        (".venv/bin/python", "exercises", None, "../.venv/bin/python -m tinydist"),
        (".venv/bin/python", ".", ".venv/bin", "python -m tinydist"),
        (".venv/bin/python", ".", "other/bin", ".venv/bin/python -m tinydist"),
        ("my env/bin/python", ".", None, "'my env/bin/python' -m tinydist"),
    ],
)
def test_as_short_as_it_works_in_this_shell(tmp_path, monkeypatch, python, here, on_path, written):
    for each in (python, "other/bin/python", "exercises/x"):
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / each).touch(mode=0o755)
    monkeypatch.chdir(tmp_path / here)
    monkeypatch.setenv("PATH", str(tmp_path / on_path) if on_path else "")
    assert command_name.command("list", python=str(tmp_path / python)) == f"{written} list"


def test_it_is_the_python_that_runs():
    assert (
        command_name.command().endswith(" -m tinydist") and os.path.basename(sys.executable) in command_name.command()
    )


def test_in_a_notebook_it_is_for_a_cell(monkeypatch):
    monkeypatch.setattr(command_name, "in_notebook", lambda: True)
    assert command_name.command("hint", "ring") == "%run -m tinydist hint ring"
