"""The learner's notebook of exercises, from outside of it: an answer is taken from it, a stub put back into it."""

import ast
import linecache

import nbformat

from ..console.command_name import command
from ..simulator.call_sites import site_of_traceback
from .atomic_files import locked, set_aside, write_atomically
from .notebooks import made
from .progress_summary import NotebookError

CALLS = ("check", "hint")  # what the notebook asks of the lab is not asked again here


class DamagedNotebook(NotebookError):
    """Its file is no notebook."""


def answer_in(path, name):
    """The function ``name``, as the notebook defines it: its code cells are run, up to the last that defines it."""
    cells = list(parsed_cells(path))
    last = max((place for place, (_, tree) in enumerate(cells) if defines(tree, name)), default=None)
    if last is None:
        raise NotebookError(f"{title(path)} does not define {name}: `{command('reset', name)}` puts its stub back")
    names = {"__name__": "__main__"}
    for label, tree in cells[: last + 1]:
        try:
            exec(compile(tree, label, "exec"), names)
        except (Exception, SystemExit) as error:
            site = site_of_traceback(error.__traceback__)
            raise NotebookError(f"{type(error).__name__}: {error}\nat {site}") from error
    return names[name]


def parsed_cells(path):
    """(label, syntax tree) of each code cell, without the calls of check and hint."""
    for number, cell in enumerate(read(path).cells, start=1):
        if cell.cell_type != "code":
            continue
        label, lines = f"{title(path)}, cell {number}", [plain(line) for line in cell.source.splitlines(keepends=True)]
        linecache.cache[label] = (len(cell.source), None, lines, label)  # errors show the line
        try:
            tree = ast.parse("".join(lines), label)
        except SyntaxError as error:
            raise NotebookError(f"SyntaxError: {error.msg}\nat {label}, line {error.lineno}: {error.text}") from None
        tree.body = [statement for statement in tree.body if not asks(statement)]
        yield label, tree


def title(path):
    return f"{path.parent.name}/{path.name}"


def plain(line):
    """IPython's own commands are left out."""
    return "\n" if line.startswith(("%", "!")) else line


def asks(statement):
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", None)) in CALLS


def defines(tree, name):
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)


def read(path):
    try:
        notebook = nbformat.read(path, as_version=4)
        return nbformat.validate(notebook) or notebook
    except OSError as error:
        raise NotebookError(f"{title(path)} cannot be read ({error.strerror})") from None
    except Exception as error:  # not only ValueError: what a damaged file makes nbformat stumble over
        raise DamagedNotebook(
            f"{title(path)} is no notebook ({type(error).__name__}). {command('reset', 'NAME')}, with an exercise of "
            "it, sets it aside and makes a new one"
        ) from None


def put_stub_back(path, exercise):
    """The stub stands in its cell again, without outputs. What became of the old text, in words."""
    try:
        with locked(path):
            try:
                notebook = read(path)
            except DamagedNotebook:
                return made_anew(path)
            before = put(exercise, notebook)
            if before is None:
                raise NotebookError(
                    f"{title(path)} has no cell with the tag {exercise.name}: take it from a fresh copy of the file"
                )
            write_atomically(path, nbformat.writes(notebook) + "\n")
            return f"What stood there:\n\n{before}"
    except OSError as error:
        raise NotebookError(f"{title(path)} cannot be written ({error.strerror or error})") from None


def put(exercise, notebook):
    """The stub, into its cell. The text that it replaced; None: there is no such cell."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and exercise.name in cell.metadata.get("tags", []):
            before, cell.source = cell.source, exercise.source
            cell.outputs, cell.execution_count = [], None
            return before
    return None


def made_anew(path):
    new = nbformat.writes(made(path.stem, solved=False)) + "\n"
    aside = set_aside(path)
    write_atomically(path, new)
    return f"The notebook was damaged: all of it is new, and the old file is {title(aside)}"
