"""Notebook cells that need an optional package: without it their stored outputs are shown.

    cells_that_need("triton", "10b_flash_kernels.ipynb")

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
    """Register ``%%package`` as a cell magic. ``notebook``: the file that has the stored outputs."""

    def magic(line, cell):
        if find_spec(package):
            get_ipython().run_cell(cell)
        else:
            show_stored(package, f"%%{package}\n{cell}", notebook)

    get_ipython().register_magic_function(magic, "cell", package)


def show_stored(package, source, notebook):
    """The note goes to stderr, which nbval does not compare, and before the outputs: a kernel would keep it back."""
    cells = nbformat.read(Path(notebook), as_version=4).cells
    stored = next((cell.outputs for cell in cells if cell.source.rstrip() == source.rstrip()), [])
    follows = "The output stored in the notebook:" if stored else "The notebook has stored no output."
    print(f"Not run: {package} is not installed. {follows}", file=sys.stderr, flush=True)
    for output in stored:
        if output.output_type == "stream" and output.name == "stdout":
            print(output.text, end="")
        elif "data" in output:
            display(output.data, metadata=output.metadata, raw=True)
