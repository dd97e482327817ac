"""The commands that stand in the examples, each system's own launcher among them, do what they say."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import train_tinydist
from same_step import RANKS

import tinydist

ROOT = Path(__file__).parents[2]


def commands():
    """Without what is optional, and without comments."""
    for path in sorted(ROOT.glob("examples/train_*.py")):
        text = ast.get_docstring(ast.parse(path.read_text()), clean=False)
        for line in re.findall(r"^    ((?:torchrun|accelerate|deepspeed) .*)$", text, re.MULTILINE):
            yield re.sub(r"\[.*?\]|#.*", "", line).strip()


def test_each_example_says_how_it_is_run():
    launchers = {command.split()[0] for command in commands()}
    assert launchers == {"torchrun", "accelerate", "deepspeed"}
    files = {command.split()[-1] for command in commands()}
    assert files == {f"examples/{path.name}" for path in ROOT.glob("examples/train_*.py")}


@pytest.fixture(scope="module")
def losses(systems):
    return tinydist.launch(train_tinydist.main, RANKS, init=False, observe=False).results[0].losses


@pytest.mark.parametrize("command", [*commands()])
def test_a_command_prints_the_losses(command, losses):
    beside = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command.split(), cwd=ROOT, env=os.environ | beside, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    (printed,) = re.findall(r"^(?:\d\.\d{5} ){19}\d\.\d{5}$", ran.stdout, re.MULTILINE)
    assert [float(loss) for loss in printed.split()] == pytest.approx(losses, abs=2e-5)
