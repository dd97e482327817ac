"""An exercise: a stub that is a plain Python function, whose docstring is the task, and all that goes with it.

    @exercise(chapter="02_collectives", title="...", minutes=20, difficulty=2, targets=[...], hints=[...], why="...",
              check=properties)
    def left_reduce_scatter(tensor, shift):
        "The task."
        ...
        raise NotImplementedError

``check(answer)`` gives the properties (verdict.py) that a learner's function of the same name must have.
"""

import ast
import difflib
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from ..shell import command
from . import find as files

CATALOGUE = {}  # name -> Exercise, in the order of the course


@dataclass(frozen=True)
class Exercise:
    stub: Callable
    chapter: str  # the name of its notebooks
    title: str
    minutes: int
    difficulty: int  # 1 to 5
    targets: dict  # what is looked at -> what must hold, with the numbers
    hints: list  # from general to specific
    why: str  # two sentences on why it matters
    check: Callable  # answer -> properties

    @property
    def name(self):
        return self.stub.__name__

    @property
    def task(self):
        return inspect.getdoc(self.stub)

    @property
    def table(self):
        return list(self.targets.items())

    @property
    def source(self):
        """The stub as it stands in the reader's notebook: without its decorator."""
        text = textwrap.dedent(inspect.getsource(self.stub))
        (function,) = ast.parse(text).body
        return "".join(text.splitlines(keepends=True)[function.lineno - 1 :]).rstrip()


def exercise(**facts):
    """A decorator: the function below becomes the stub of an exercise, and stays what it is."""

    def register(stub):
        CATALOGUE[stub.__name__] = Exercise(stub, **facts)
        return stub

    return register


def find(function_or_name) -> Exercise:
    """The exercise of that name. LookupError with the names that are like it."""
    name = getattr(function_or_name, "__name__", function_or_name)
    found = of_name(name)
    if found is None:
        close = difflib.get_close_matches(str(name), [each.name for each in course()])
        where = f"Did you mean {' or '.join(close)}?" if close else f"{command()} lists them"
        raise LookupError(f"there is no exercise {name!r}. {where}")
    return found


def of_name(name):
    return files.exercise(name) or CATALOGUE.get(name)


def course():
    """All exercises, in their order."""
    return [exercise for chapter in chapters() for exercise in of_chapter(chapter)]


def chapters():
    return sorted({*files.chapters(), *(each.chapter for each in CATALOGUE.values())})


def of_chapter(chapter):
    if chapter in files.chapters():
        return list(filter(None, map(of_name, files.names_of(chapter))))
    return [each for each in CATALOGUE.values() if each.chapter == chapter]


def following(exercise):
    """The next one of its chapter; None after the last."""
    names = [each.name for each in of_chapter(exercise.chapter)]
    place = names.index(exercise.name) + 1
    return find(names[place]) if place < len(names) else None
