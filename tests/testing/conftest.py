"""Runs pytest with the plugin on a file of tests, in this process or in another."""

import re
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tinydist.torch_internals import load_for_modes

PLUGIN = "tinydist.testing.plugin"
INSTALLED = any(point.value == PLUGIN for point in entry_points(group="pytest11"))
OPTIONS = ["-p", "no:cacheprovider", "-W", "ignore"]
IMPORTS = "import os, sys, pytest, torch\nimport torch.distributed as dist\n"


class Ran:
    def __init__(self, result):
        self.status, self.text = result.ret, result.stdout.str() + result.stderr.str()
        counts = result.parseoutcomes() if re.search(r" in [\d.]+s", self.text) else {}
        self.outcomes = {name: number for name, number in counts.items() if not name.startswith("warning")}

    def between(self, first, last):
        """What was printed from the line that begins with ``first`` to the next that begins with ``last``."""
        found = re.search(rf"^{re.escape(first)}.*?^{re.escape(last)}[^\n]*", self.text, re.MULTILINE | re.DOTALL)
        return found and "\n".join(line.rstrip() for line in found[0].splitlines())


LOADED = (  # once for all: after each run in this process pytester forgets what that has imported
    "torch.testing._internal.common_distributed tinydist.processes.worker "
    "tinydist.testing.on_processes tinydist.testing.spawned tinydist.launching.backends tinydist.tracing.replay"
)


@pytest.fixture(scope="session")
def loaded():
    for name in [*LOADED.split(), PLUGIN]:
        import_module(name)
    load_for_modes()


@pytest.fixture
def tests(pytester, monkeypatch, loaded):
    """``tests(source, *options)``: a ``Ran``. Or files, by name."""
    monkeypatch.delenv("TINYDIST_BACKEND", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))

    def run(source="", *options, method="inprocess", imports=IMPORTS, **files):
        pytester.makepyfile(**{"test_it": imports + source} | files)
        alone = method == "subprocess"  # it loads no other plugin, so that it starts at once
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1") if alone else None
        plugin = ["-p", PLUGIN] if alone or not INSTALLED else []
        return Ran(getattr(pytester, f"runpytest_{method}")(*OPTIONS, *plugin, *options))

    return run
