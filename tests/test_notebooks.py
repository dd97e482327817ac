"""Every notebook as it is committed: what a reader must find in it.

Whether the outputs are right is nbval's to say: `make notebooks` runs the cells and compares.
"""

import ast
import re
from copy import deepcopy
from pathlib import Path

import nbformat
import pytest
import torch
from IPython.core.inputtransformer2 import TransformerManager
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).parent.parent
FOLDERS = ("notebooks", "site", "solutions", "exercises")
NOTEBOOKS = sorted(path.relative_to(ROOT) for folder in FOLDERS for path in ROOT.glob(f"{folder}/*.ipynb"))
# As `make lab` writes it, with any Python: see jupyter_lab_config.py.
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
    },
}
RAISES = "raises-exception"  # the tag of a cell that is meant to fail
SCREEN, CONTROL, LINE = (
    750,
    33,
    17,
)  # pixels: what JupyterLab has for cells on a screen of 1400 x 900; what widgets take
LARGEST = 600_000  # bytes: more is slow to open, and does not show on the web
WIDEST = 88  # characters: a longer line of code is broken where a page is narrow
TABLES = {"visuals.table", "visuals.beside"}  # shown as the last value of a cell alone: pictures show themselves
NARROW = [path for path in NOTEBOOKS if path.parent.name == "notebooks" and path.stem[0].isdigit()]
IN_FULL = re.compile(r"\d+\.\d{7,}(?:e[-+]?\d+)?")  # a float that nobody has rounded
# Two parts at least, with nothing before: not `bytes/s`, not `https://…`. Temporary paths are conftest.py's.
ABSOLUTE_PATH = re.compile(r"(?<![\w/.:<+])/(?!tmp/|var/folders/)[\w.-]+/[\w./-]+|\b[A-Z]:\\\w+")


# The rules: each yields what is wrong with a notebook.


def run_once_in_order(notebook):
    counts = [cell.execution_count for cell in code_cells(notebook)]
    if counts != list(range(1, len(counts) + 1)):
        yield f"its cells were not run once and in order, in a fresh kernel: {counts}"


def no_errors(notebook):
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if output.output_type == "error" and RAISES not in cell.metadata.get("tags", []):
                yield f"cell {cell.execution_count} fails, and has no tag {RAISES}: {output.evalue}"


def no_stderr(notebook):
    for cell, output in outputs(notebook):
        if output.get("name") == "stderr":
            yield f"cell {cell.execution_count} writes to stderr: {output.text!r}"


def no_widget_state(notebook):
    if "widgets" in notebook.metadata:
        yield "it keeps the state of widgets: clear metadata.widgets"


def no_svg(notebook):
    for cell, output in outputs(notebook):
        html = "".join(output.get("data", {}).get("text/html", ""))
        if "image/svg+xml" in output.get("data", {}) or "<svg" in html:
            yield f"cell {cell.execution_count} shows an SVG, which a fresh clone does not display"


def no_empty_output(notebook):
    for cell, output in outputs(notebook):
        if output.get("data") == {}:
            yield f"cell {cell.execution_count} has an output without data, of a line that has vanished: delete it"


def not_too_large(notebook):
    size = len(nbformat.writes(notebook).encode())
    if size > LARGEST:
        yield f"it has {size:,} bytes, more than {LARGEST:,}"


def metadata_of_jupyterlab(notebook):
    for name, right in METADATA.items():
        if notebook.metadata.get(name) != right:
            yield f"its {name} is {notebook.metadata.get(name)}, which opening it in JupyterLab makes {right}"


def no_path_of_a_machine(notebook):
    for cell, output in outputs(notebook):
        for text in texts(output):
            if found := ABSOLUTE_PATH.search(text):
                yield f"cell {cell.execution_count} shows a path of one machine: {found[0]}"


def explorers_fit(notebook):
    for cell, output in outputs(notebook):
        text = "".join(output.get("data", {}).get("text/plain", ""))
        if text.startswith("Explorer("):
            controls, lines = text.splitlines()[0].count("="), len(text.splitlines()) - 1
            height = output.metadata["image/png"]["height"] + CONTROL * controls + LINE * lines
            if height > SCREEN:
                yield f"the explorer of cell {cell.execution_count} is {height} pixels high, more than {SCREEN}"


def lines_of_code_are_short(notebook):
    for cell in code_cells(notebook):
        for line in cell.source.splitlines():
            if len(line) > WIDEST:
                yield f"cell {cell.execution_count} has a line of {len(line)} characters, more than {WIDEST}: {line}"


def no_number_in_full(notebook):
    for cell, output in outputs(notebook):
        if not any(tag.startswith("within-") for tag in cell.metadata.get("tags", [])):
            for text in texts(output):
                for number in filter(is_rounded, IN_FULL.findall(text)):
                    yield f"cell {cell.execution_count} shows {number}, whose last digits depend on the processor"


def tables_are_shown(notebook):
    trees = [(cell, ast.parse(TransformerManager().transform_cell(cell.source))) for cell in code_cells(notebook)]
    names = [node for _, tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)]
    used = {name.id for name in names if isinstance(name.ctx, ast.Load)}
    for cell, tree in trees:
        last = tree.body[-1] if tree.body and not cell.source.rstrip().endswith(";") else None
        for node in ast.walk(tree):
            dropped = isinstance(node, ast.Expr) and node is not last
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                dropped = node.targets[0].id not in used
            if dropped and is_a_table(node.value):
                yield f"cell {cell.execution_count} builds a table and does not show it: {ast.unparse(node)}"


def is_a_table(value):
    return isinstance(value, ast.Call) and ast.unparse(value.func) in TABLES


def is_rounded(number):
    """What 16 bits can hold is exact: a chapter about formats shows it in full."""
    return torch.tensor(float(number)).half().item() != float(number)


RULES = [
    run_once_in_order,
    no_errors,
    no_stderr,
    no_widget_state,
    no_svg,
    no_empty_output,
    not_too_large,
    metadata_of_jupyterlab,
    no_path_of_a_machine,
    explorers_fit,
    no_number_in_full,
    tables_are_shown,
]


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [(cell, output) for cell in code_cells(notebook) for output in cell.outputs]


def texts(output):
    data = {kind: text for kind, text in output.get("data", {}).items() if kind.startswith("text/")}
    yield from data.values()
    yield output.get("text", "")
    yield "\n".join([output.get("evalue", ""), *output.get("traceback", [])])


def faults(notebook):
    return [fault for rule in RULES for fault in rule(notebook)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=str)
def test_notebook(path):
    assert faults(nbformat.read(ROOT / path, as_version=4)) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=str)
def test_a_notebook_is_written_as_jupyterlab_writes_it(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    assert text == nbformat.writes(nbformat.reads(text, as_version=4)) + "\n"


@pytest.mark.parametrize("path", NARROW, ids=str)
def test_lines_of_code_are_short(path):
    assert list(lines_of_code_are_short(nbformat.read(ROOT / path, as_version=4))) == []


def test_a_long_line_of_code_is_found():
    notebook = good_notebook()
    notebook.cells[1].source = "x = 1\n" + "y" * 89
    (found,) = lines_of_code_are_short(notebook)
    assert found.startswith("cell 1 has a line of 89 characters, more than 88: yyy")


# Each rule can fail: a good notebook, broken in one place.


def good_notebook():
    cells = [
        new_markdown_cell("A link: /some/path/of/text"),
        new_code_cell("print(1)", execution_count=1, outputs=[printed("1 GB/s, dp/tp/pp, https://a.b/c, 0.599609375")]),
        new_code_cell("1 / 0", execution_count=2, outputs=[failed()], metadata={"tags": [RAISES]}),
        new_code_cell(
            "table = visuals.table(rows)\ntable",
            execution_count=3,
            outputs=[shown("image/png", "iVBOR/ab/cd"), explorer(3, 600)],
        ),
    ]
    return new_notebook(cells=cells, metadata=deepcopy(METADATA))


def printed(text, name="stdout"):
    return new_output("stream", name=name, text=text)


def shown(kind, content):
    return new_output("display_data", data={kind: content})


def explorer(controls, height):
    values = ", ".join(f"x{number}=1" for number in range(controls))
    data, metadata = {"text/plain": f"Explorer({values})\na line"}, {"image/png": {"height": height}}
    return new_output("execute_result", data=data, metadata=metadata)


def failed(*frames):
    return new_output("error", ename="ZeroDivisionError", evalue="division by zero", traceback=list(frames))


def add(output):
    return lambda notebook: notebook.cells[1].outputs.append(output)


def source(code):
    return lambda notebook: notebook.cells[1].update(source=code)


BROKEN = [
    ("not run once and in order", lambda notebook: notebook.cells[2].update(execution_count=5)),
    ("not run once and in order", lambda notebook: notebook.cells[3].update(execution_count=None)),
    ("not run once and in order", lambda notebook: notebook.cells.reverse()),
    ("cell 2 fails", lambda notebook: notebook.cells[2].metadata.clear()),
    ("cell 1 writes to stderr: 'a warning'", add(printed("a warning", "stderr"))),
    ("state of widgets", lambda notebook: notebook.metadata.update(widgets={})),
    ("the explorer of cell 1 is 761 pixels high", add(explorer(12, 348))),
    ("cell 1 shows an SVG", add(shown("image/svg+xml", "<svg/>"))),
    ("cell 1 shows an SVG", add(shown("text/html", "<p><svg/></p>"))),
    ("cell 1 has an output without data", add(new_output("display_data"))),
    ("cell 1 shows 0.30000001192092896", add(printed("a sum of 0.30000001192092896"))),
    ("cell 1 shows 5.466621875762939", add(shown("text/plain", "5.466621875762939"))),
    ("more than 600,000", add(shown("image/png", "x" * LARGEST))),
    (
        "its kernelspec is {'display_name': 'Julia'",
        lambda notebook: notebook.metadata.kernelspec.update(display_name="Julia"),
    ),
    ("its kernelspec is None", lambda notebook: notebook.metadata.pop("kernelspec")),
    ("'version': '3.14.0'}, which opening", lambda notebook: notebook.metadata.language_info.update(version="3.14.0")),
    (
        "one machine: /home/ada/tinydist/launching/launch.py",
        add(printed('File "/home/ada/tinydist/launching/launch.py"')),
    ),
    ("one machine: /Users/ada", add(shown("text/plain", "PosixPath('/Users/ada')"))),
    ("one machine: C:\\Users", add(printed("C:\\Users\\ada"))),
    ("does not show it: visuals.table(rows)", source("visuals.table(rows)\nassert rows")),
    ("does not show it: visuals.table(rows)", source("visuals.table(rows);")),
    ("does not show it: visuals.beside(ours)", source("for ours in both:\n    visuals.beside(ours)")),
    ("does not show it: times = visuals.table(rows)", source("times = visuals.table(rows)\nprint(1)")),
    ("one machine: /usr/lib", lambda notebook: notebook.cells[2].update(outputs=[failed("/usr/lib/x.py")])),
]


def test_good_notebook_has_no_faults():
    assert faults(good_notebook()) == []


@pytest.mark.parametrize("fault, break_it", BROKEN)
def test_broken_notebook_has_one_fault(fault, break_it):
    notebook = good_notebook()
    break_it(notebook)
    (found,) = faults(notebook)
    assert fault in found


def test_every_rule_can_fail():
    broken = [good_notebook() for _ in BROKEN]
    for notebook, (_, break_it) in zip(broken, BROKEN, strict=True):
        break_it(notebook)
    assert [rule for rule in RULES if not any(list(rule(notebook)) for notebook in broken)] == []
