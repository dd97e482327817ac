"""Cells that need a package which not everybody has: where it is not, their stored outputs are shown.

    cells_that_need("triton", "10_flash_attention.ipynb")

    %%triton
    kernel[grid](...)           runs where Triton is installed; elsewhere shows what the notebook's file has

So a notebook is read, run from end to end, and compared, with the package and without it.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import nbformat
from IPython import get_ipython
from IPython.display import display


def cells_that_need(package, notebook):
    """From here on cells that begin with ``%%package`` need it. ``notebook``: the file that they stand in."""

    def magic(line, cell):
        if find_spec(package):
            get_ipython().run_cell(cell)
        else:
            show_stored(package, f"%%{package}\n{cell}", notebook)

    get_ipython().register_magic_function(magic, "cell", package)


def show_stored(package, source, notebook):
    """On stderr is said that it was not run: there nothing is compared."""
    stored = nbformat.read(Path(notebook), as_version=4).cells
    found = [cell for cell in stored if cell.source.rstrip() == source.rstrip()]
    if not found:
        print(f"Not run: {package} is not installed, and the notebook's file has no such cell", file=sys.stderr)
        return
    print(
        f"Not run: {package} is not installed. What follows is the output that the notebook has stored", file=sys.stderr
    )
    for output in found[0].outputs:
        if output.output_type == "stream" and output.name == "stdout":
            print(output.text, end="")
        elif "data" in output:
            display(output.data, metadata=output.metadata, raw=True)
