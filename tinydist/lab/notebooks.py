"""The notebooks of exercises and solutions, made from the files of the exercises: ``make exercises``.

Cells are known by their ids. What was written is remembered in the notebook, as a digest of each cell: a cell that a
reader has changed stays as it is, and so do those that he has added.
"""

import hashlib
import os
import sys
import tempfile

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from .find import chapters, load, of_chapter, root

WRITTEN = "tinydist"  # in the metadata of a notebook: id of a cell -> digest of its text
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
        cells += [
            new_markdown_cell(task(number, exercise), id=f"{name}-task"),
            new_code_cell(text, id=name, metadata={"tags": [exercise.name]}),
            new_code_cell(f"check({exercise.name})", id=f"{name}-check"),
        ]
    return new_notebook(cells=cells, metadata={**METADATA, WRITTEN: {cell.id: digest(cell) for cell in cells}})


def task(number, exercise):
    rows = "\n".join(f"| {what} | {target} |" for what, target in exercise.table)
    return (
        f"## {number}. {exercise.title}\n\n{exercise.minutes} minutes, difficulty {exercise.difficulty} of 5.\n\n"
        f"{paragraphs(exercise.task)}\n\n| checked | target |\n|---|---|\n{rows}"
    )


def paragraphs(text):
    return "\n\n".join(" ".join(each.replace("``", "`").split()) for each in text.split("\n\n"))


def digest(cell):
    return hashlib.sha256(cell.source.encode()).hexdigest()[:12]


def path_of(chapter, solved):
    folder = root() if solved else root().parent / "exercises"
    return folder / f"{chapter}.ipynb"


def merged(new, old, solved):
    """``old``, a reader's, with what is new, and the ids of cells that are his: those he has changed or added."""
    fresh = {cell.id: cell for cell in new.cells}
    # One without digests was written before there were any: then all code that differs is his.
    written = old.metadata.get(WRITTEN) or {cell.id: digest(cell) for cell in (old if solved else new).cells}
    texts = () if WRITTEN in old.metadata else {cell.id for cell in old.cells if cell.cell_type == "markdown"}
    his = {cell.id for cell in old.cells if written.get(cell.id) != digest(cell) and cell.id not in texts}
    cells, previous = list(new.cells), None
    for cell in old.cells:
        if cell.id in his and cell.id in fresh:
            cells[[each.id for each in cells].index(cell.id)] = cell
        elif cell.id in his:
            ids = [each.id for each in cells]
            cells.insert(ids.index(previous) + 1 if previous in ids else len(ids), cell)
        previous = cell.id
    return {**new, "cells": cells}, his


def write(chapter, solved):
    """The notebook, with the outputs of a run from its top; those of a reader's stay his. Ids of cells that are his."""
    path, new = path_of(chapter, solved), made(chapter, solved)
    if path.exists():
        old = nbformat.read(path, as_version=4)
        text, his = merged(new, old, solved)
        if his:
            before = {cell.id: cell for cell in old.cells if cell.cell_type == "code"}
            for cell in text["cells"]:
                if cell.id in before and cell.source == before[cell.id].source:
                    cell.outputs, cell.execution_count = before[cell.id].outputs, before[cell.id].execution_count
            save(path, nbformat.from_dict(text))
            return his
    save(path, run(new, path.parent))
    return set()


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
            his = write(chapter, solved)
            kept = f": {', '.join(sorted(his))} {'is' if len(his) == 1 else 'are'} yours, and kept" if his else ""
            print(f"{path_of(chapter, solved)}{kept}")


if __name__ == "__main__":
    main(sys.argv[1:])
