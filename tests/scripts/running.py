"""``tinydist run`` in this process, on a program of tests/programs or on lines that a test has written."""

import textwrap
from pathlib import Path

from tinydist.__main__ import main

PROGRAMS = Path(__file__).parent.parent / "programs"


class Ran:
    def __init__(self, status, captured):
        self.status, self.out, self.err = status, captured.out.splitlines(), captured.err.splitlines()


def runner(capsys, monkeypatch, tmp_path):
    """``run(*words, lines=None)``: ``words`` of the command line; ``lines`` are the script, which is appended."""

    def run(*words, lines=None, then=()):
        if lines is None:
            monkeypatch.chdir(PROGRAMS)
        else:
            (tmp_path / "script.py").write_text(textwrap.dedent(lines))
            monkeypatch.chdir(tmp_path)
            words = (*words, "script.py", *then)
        capsys.readouterr()
        return Ran(main(["run", *map(str, words)]), capsys.readouterr())

    return run
