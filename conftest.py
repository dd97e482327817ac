"""Notebooks are compared by nbval (`pytest --nbval notebooks`): what it needs to compare ours, and why."""

import os
import re
import sys
import tempfile
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from itertools import zip_longest
from math import isclose

import nbval.kernel
from jupyter_client.provisioning import KernelProvisionerFactory
from nbformat import NotebookNode
from nbval.plugin import IPyNbCell, IPyNbFile, coalesce_streams

# These differ from run to run and from machine to machine.
REPLACE = {
    r"\b0x[0-9a-f]{8,}": "an address",
    r"(/private)?(/tmp|/var/folders/\w+/\w+/T)/[^\s'\":]+": "a temporary path",
}
# A cell with the tag within-1e-5: its numbers may differ by that, relative to those that are stored.
TOLERANCE = re.compile(r"within-(\d+(?:\.\d+)?e-\d+)")
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def pytest_collectstart(collector):
    if isinstance(collector, IPyNbFile):
        collector.skip_compare += ("stderr",)  # warnings depend on the machine
        collector.sanitize_patterns.update(REPLACE)


start_new_kernel = nbval.kernel.start_new_kernel


def start_kernel_as_a_reader_does(**options):
    # A kernel that sees these drops what child processes print, or draws no figures.
    hidden = ("PYTEST_CURRENT_TEST", "MPLBACKEND")
    options["env"] = {name: value for name, value in os.environ.items() if name not in hidden}
    # What a notebook checks here, no reader has done.
    options["env"]["TINYDIST_PROGRESS"] = os.path.join(tempfile.mkdtemp(), "progress.json")
    # What a reader sees while he waits is no output of the notebook.
    options["env"]["TINYDIST_QUIET"] = "1"
    # What follows keeps a history, and it must not be the reader's own.
    options["extra_arguments"] = ["--HistoryManager.hist_file=:memory:"]
    return start_new_kernel(**options)


def execute_and_keep_history(kernel, source, allow_stdin=None):
    # IPython looks for the `;` that hides a value in the history, which nbval does not keep.
    return kernel.kc.execute(source, store_history=True, allow_stdin=allow_stdin, stop_on_error=False)


compare_outputs = IPyNbCell.compare_outputs


def compare_within_the_tolerance(cell, found, stored, skip_compare=None):
    for tag in cell.cell.metadata.get("tags", []):
        if tolerance := TOLERANCE.fullmatch(tag):
            found, stored = (coalesce_streams(outputs) for outputs in (found, stored))
            found = as_stored(found, stored, float(tolerance[1]))
    return compare_outputs(cell, found, stored, skip_compare)


def as_stored(found, stored, tolerance):
    """``found``, texts in lists and dictionaries; with the numbers of ``stored`` that are within the tolerance."""
    if isinstance(found, list) and isinstance(stored, list):
        return [as_stored(*pair, tolerance) for pair in zip_longest(found, stored)]
    if isinstance(found, dict) and isinstance(stored, dict):
        return NotebookNode({name: as_stored(each, stored.get(name), tolerance) for name, each in found.items()})
    if not (isinstance(found, str) and isinstance(stored, str)):
        return found
    numbers = iter(NUMBER.findall(stored))

    def stored_if_close(number):
        expected = next(numbers, number[0])
        return expected if isclose(float(number[0]), float(expected), rel_tol=tolerance) else number[0]

    return NUMBER.sub(stored_if_close, found)


IPyNbCell.compare_outputs = compare_within_the_tolerance
nbval.kernel.start_new_kernel = start_kernel_as_a_reader_does
nbval.kernel.RunningKernel.execute_cell_input = execute_and_keep_history

if sys.platform == "linux" and find_spec("warm"):  # tests/warm.py: kernels share a process in which torch is loaded
    kernels = KernelProvisionerFactory.instance()
    kernels.provisioners["local-provisioner"] = EntryPoint("local-provisioner", "warm:WarmKernel", kernels.GROUP_NAME)
