"""An explorer draws whenever its reader moves a slider: then, what its function reads must be as it was in its cell."""

import ast
from pathlib import Path

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from test_notebooks import NARROW, ROOT

FUNCTIONS = ast.FunctionDef, ast.Lambda
INNER = *FUNCTIONS, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp


@pytest.mark.parametrize("path", NARROW, ids=Path.as_posix)
def test_no_later_cell_changes_what_an_explorer_reads(path):
    cells = nbformat.read(ROOT / path, as_version=4).cells
    assert list(changed([cell.source for cell in cells if cell.cell_type == "code"])) == []


def test_a_name_that_is_bound_again_is_found():
    explorer = "def half(x):\n    y = x / 2\n    return y + z\n\n\nvisuals.Explorer(lambda x: half(x), x=(1, 2))"
    assert list(changed(["z = 1", explorer, "x, y = 1, 2"])) == []
    assert list(changed(["z = 1", explorer, "for y, z in {}:\n    pass"])) == ["z"]
    assert list(changed(["z = 1", explorer, "from math import tau as z"])) == ["z"]
    assert list(changed(["z = 1", explorer, "def half(z):\n    pass"])) == ["half"]


def changed(sources):
    """Names that a function of an explorer reads, itself or in what it calls, and that a later cell binds."""
    trees = [ast.parse(TransformerManager().transform_cell(source)) for source in sources]
    binds, functions = list(map(bound, trees)), {}
    for number, tree in enumerate(trees):
        functions |= {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        later = set().union(*binds[number + 1 :])
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "visuals.Explorer":
                yield from sorted(read_by(call.args[0], functions) & later)


def bound(node):
    """Names that a cell binds, not those of its functions and comprehensions."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        return {node.id}
    names = {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else set()
    if isinstance(node, ast.alias):
        names = {(node.asname or node.name).partition(".")[0]}
    inside = () if isinstance(node, INNER) else ast.iter_child_nodes(node)
    return names.union(*map(bound, inside))


def read_by(node, functions):
    found, left = set(), [node]
    while left:
        new = read_in(left.pop()) - found
        found |= new
        left += [functions[name] for name in new & set(functions)]
    return found


def read_in(node):
    nodes = list(ast.walk(node))
    names = [each for each in nodes if isinstance(each, ast.Name)]
    own = {each.id for each in names if not isinstance(each.ctx, ast.Load)}
    own |= {each.arg for each in nodes if isinstance(each, ast.arg)}
    return {each.id for each in names} - own
