"""Other last bits: drawn alike everywhere, charged to no rank, and a digit that does not hold is found."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from warm import told_by

TESTS = Path(__file__).parent
DRAWN = "import torch; torch.manual_seed(0); x = torch.randn(2)\n"
HOLDS, DOES_NOT_HOLD = "print(f'{x.norm():.3f}')", "print(f'{x.norm():.9f}')"


def stored(folder):
    """A notebook with the outputs that its cells have without other last bits."""
    (folder / "alone.py").write_text(f"{DRAWN}{HOLDS}\n{DOES_NOT_HOLD}")
    first, second = told_by(folder / "alone.py").splitlines()
    cells = [
        new_code_cell(DRAWN + code, execution_count=1, outputs=[new_output("stream", text=text + "\n")])
        for code, text in ((HOLDS, first), (DOES_NOT_HOLD, second))
    ]
    nbformat.write(new_notebook(cells=cells), folder / "scratch.ipynb")
    return folder / "scratch.ipynb"


@pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux alone: warm.py")
def test_a_last_bit_in_a_stored_output_is_refused(tmp_path):
    shutil.copy(TESTS.parent / "conftest.py", tmp_path)
    command = [sys.executable, "-m", "pytest", "-v", "--nbval", "--nbval-current-env", stored(tmp_path)]
    verdicts = {}
    for name, variables in {"as it is": {}, "other last bits": {"TINYDIST_LAST_BITS": "1"}}.items():
        environment = os.environ | {"PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"} | variables
        run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        verdicts[name] = re.findall(r"::Cell \d+ (PASSED|FAILED)", run.stdout)
    assert verdicts == {"as it is": ["PASSED", "PASSED"], "other last bits": ["PASSED", "FAILED"]}


PROGRAM = """
import last_bits, sys, torch, tinydist
from torch import nn

def draws():
    return torch.randn(4), nn.Linear(3, 2).weight.detach(), tinydist.mark("all")

run = tinydist.launch(draws, 2)
(x, weight, _), (again, _, _) = run.results
torch.manual_seed(0)
assert torch.equal(x, again) and torch.equal(x, torch.randn(4))
print(run.memory[0].at("all"), run.seconds)
fake = tinydist.launch(draws, 2, fake=True)
assert fake.seconds == run.seconds
"""


def test_ranks_draw_alike_and_are_charged_as_ever(tmp_path):
    (tmp_path / "shifted.py").write_text(PROGRAM)
    (tmp_path / "plain.py").write_text(PROGRAM.replace("last_bits, ", ""))
    assert told_by(tmp_path / "shifted.py") == told_by(tmp_path / "plain.py")
