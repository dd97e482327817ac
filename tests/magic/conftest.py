"""A notebook in this process: its cells, and what they show."""

import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

SETUP = "import torch, torch.distributed as dist\n%load_ext tinydist"


class Notebook:
    def __init__(self):
        quiet = Config({"HistoryManager": {"hist_file": ":memory:"}, "InteractiveShell": {"colors": "nocolor"}})
        self.shell = InteractiveShell.instance(config=quiet)
        self.run(SETUP)

    def run(self, text):
        """Run a cell; what it prints. ``shown``: that, and its pictures. Raises what it raises."""
        with capture_output() as self.shown:
            came = self.shell.run_cell(text, store_history=True)
        came.raise_error()
        return self.shown.stdout

    def on_ranks(self, line, text):
        """What the ranks of a ``%%ranks`` cell print, and what its last line comes to."""
        lines = self.run(f"%%ranks {line}\n{text}").splitlines()
        return [each for each in lines if each.startswith(("rank", "[rank"))]

    def fails(self, text):
        """What a cell shows that fails."""
        with pytest.raises(BaseException) as self.error:
            self.run(text)
        return self.shown.stdout + self.shown.stderr

    def __getitem__(self, expression):
        return self.shell.ev(expression)


@pytest.fixture(scope="module")
def notebook():
    main, hook = sys.modules["__main__"], sys.displayhook
    yield Notebook()
    sys.modules["__main__"], sys.displayhook = main, hook
    InteractiveShell.clear_instance()
