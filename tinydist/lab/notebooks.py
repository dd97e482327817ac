"""Notebooks of exercises: generated from the exercise files (``make exercises``); the learner's, run and reset.

An exercise's cell has the exercise's name as a tag, so that it is found whatever the reader made of it.
"""

import ast
import linecache
import os
import sys
import tempfile

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from ..console.command_name import command
from .atomic_files import locked, set_aside, write_atomically
from .copy_course import WRITTEN, digest
from .errors import line_of
from .progress_summary import NotebookError
from .registry import chapters, load, of_chapter, root

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
CHECK = "from tinydist.lab import check, hint\n\ncheck({})"  # so that it can be run before all others
HINT = "# hint({})  # uncomment this for a hint, one each time"  # not shown by "Run All"
CALLS = ("check", "hint")  # what the notebook asks of the lab is not asked again here
KERNEL = {"TINYDIST_QUIET": "1", "OMP_NUM_THREADS": "1"}


def made(chapter, solved):
    """A notebook without outputs: the exercises of a chapter, or their solutions."""
    first = load(chapter, "chapter")
    cells = [
        new_markdown_cell(first.INTRODUCTION, id="introduction"),
        new_code_cell(first.IMPORTS, id="imports"),
    ]
    for number, exercise in enumerate(of_chapter(chapter), start=1):
        name = exercise.name.replace("_", "-")
        text = exercise.solution if solved else exercise.source
        elsewhere = {"tags": ["nbval-ignore-output"]} if exercise.unavailable is not str else {}
        cells += [
            new_markdown_cell(task(number, exercise), id=f"{name}-task"),
            new_code_cell(text, id=name, metadata={"tags": [exercise.name]}),
            new_code_cell(CHECK.format(exercise.name), id=f"{name}-check", metadata=elsewhere),
        ]
        cells += [] if solved else [new_code_cell(HINT.format(exercise.name), id=f"{name}-hint")]
    return new_notebook(cells=cells, metadata={**METADATA, WRITTEN: {cell.id: digest(cell.source) for cell in cells}})


def task(number, exercise):
    rows = "\n".join(f"| {what} | {target} |" for what, target in exercise.table)
    return (
        f"## {number}. {exercise.title}\n\n{exercise.minutes} minutes, difficulty {exercise.difficulty} of 5.\n\n"
        f"{paragraphs(exercise.task)}\n\n| checked | target |\n|---|---|\n{rows}"
    )


def paragraphs(text):
    return "\n\n".join(" ".join(each.replace("``", "`").split()) for each in text.split("\n\n"))


def path_of(chapter, solved):
    folder = root() if solved else root().parent / "exercises"
    return folder / f"{chapter}.ipynb"


def write(chapter, solved):
    """With the outputs of a run from its top."""
    path = path_of(chapter, solved)
    save(path, run(made(chapter, solved), path.parent))
    return path


def run(notebook, folder):
    from nbclient import NotebookClient  # of the tests alone

    progress = os.path.join(tempfile.mkdtemp(), "progress.json")  # what is checked here, no reader has done
    before = dict(os.environ)
    os.environ.update(KERNEL, TINYDIST_PROGRESS=progress)
    metadata = dict(notebook.metadata)
    try:
        where = {"metadata": {"path": str(folder)}}
        NotebookClient(
            notebook, timeout=300, kernel_name="python3", resources=where, store_widget_state=False, record_timing=False
        ).execute()
    finally:
        os.environ.clear(), os.environ.update(before)
    notebook.metadata = nbformat.from_dict(metadata)
    return notebook


def save(path, notebook):
    path.write_text(nbformat.writes(nbformat.from_dict(notebook)) + "\n", encoding="utf-8")


# The reader's notebook, from outside of it.


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
            raise NotebookError(f"{type(error).__name__}: {error}\n{line_of(error)}") from error
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


def main(names):
    for chapter in names or chapters():
        for solved in (False, True):
            print(write(chapter, solved))


if __name__ == "__main__":
    main(sys.argv[1:])
