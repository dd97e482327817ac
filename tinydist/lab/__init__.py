"""The exercises: what is asked, the check on three axes, hints, and how far the reader has come.

An exercise is one file in solutions/, outside of the package, since it holds the solution:

author.py       what such a file is written with
exercise.py     a solution, its targets, its worlds, its mistakes; marks.py: the blanks in it
find.py         where the files are; the course in its order
syllabus.py     their titles, minutes and order, read and not run
notebooks.py    the notebooks of exercises and solutions, made from the files

A check runs the answer beside the solution, in the same worlds, and compares:

worlds.py       an answer in a world; watch.py: what it calls; limit.py: no answer runs for ever
changed.py      a world where what one rank sends is changed on the way
tools.py        what the lab measures with is out of an answer's reach
judging.py      worlds one after another, as few as it takes
target.py       what must hold, and which mistake it is if it does not
results.py      the first axis: values; leaves.py: what is in them; differences.py, sums.py: how they differ
sent.py         the second: what was sent, to whom; collectives.py: what was called; messages.py: as it is recorded
costs.py        the third: bytes held, and FLOPs and seconds; pictures.py: of these and of what was sent
verdict.py      properties judged in order; errors.py: what was raised, on which rank, at which line
untouched.py    has the learner begun?

reader.py       what a reader calls: check, hint; page.py: what is said, in a terminal and in a notebook
puzzle.py       a program in a notebook's cell, judged whenever the cell runs
progress.py     what the reader has done; standing.py: chapter by chapter; overview.py: on the map of the notebooks
notebook.py     the reader's notebook, from outside of it
copied.py       the course, in a folder of the reader's own; merged.py: what is new in it, and what he has written
whole_files.py  files that are written at once or not at all, by one at a time
commands.py     the command line; prompt.py: the course in a terminal; watching.py: a check whenever a notebook is saved
"""

__all__ = ["check", "hint", "judge"]


def __getattr__(name):
    """The list of exercises and the reader's progress are there without torch, and without these."""
    if name not in __all__:
        raise AttributeError(f"tinydist.lab has no {name}")
    from . import reader

    return getattr(reader, name)
