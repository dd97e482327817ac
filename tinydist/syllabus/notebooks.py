"""Notebooks of exercises, generated from the exercise files (``make exercises``).

An exercise's cell has the exercise's name as a tag, so that it is found whatever the reader made of it.
"""

import os
import sys
import tempfile

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from .copy_course import WRITTEN, digest
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


def main(names):
    for chapter in names or chapters():
        for solved in (False, True):
            print(write(chapter, solved))


if __name__ == "__main__":
    main(sys.argv[1:])
