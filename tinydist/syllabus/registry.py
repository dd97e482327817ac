"""The registry of exercises: one folder per chapter, one file per exercise, outside of the package (they are spoilers).

They are looked for in TINYDIST_EXERCISES; in the current folder and those above it, under ``solutions``; and beside the
package, or in it, if it was installed. Only the file that is named like the exercise is loaded; lists of all are
parsed, without importing the files or torch.
"""

import ast
import difflib
import importlib
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import tinydist

from ..console.command_name import command
from ..simulator.call_sites import count_as_library

FOLDER, CHAPTER = "solutions", "chapter.py"
PACKAGE = Path(tinydist.__file__).resolve().parent
HOMES = (PACKAGE.parent, PACKAGE / "course")  # where a clone has the course, and an installed package
NOWHERE = "The exercises are not part of the package: clone tinydist, or say in TINYDIST_EXERCISES where they are"


def root():
    """The folder of the chapters; None: there is none."""
    named = os.environ.get("TINYDIST_EXERCISES")
    here = Path.cwd()
    places = [Path(named)] if named else [folder / FOLDER for folder in (here, *here.parents, *HOMES)]
    return next((place.resolve() for place in places if any(place.glob(f"*/{CHAPTER}"))), None)


def chapters():
    """Names, in the order of the course."""
    place = root()
    return sorted(path.parent.name for path in place.glob(f"*/{CHAPTER}")) if place else []


def load(chapter, name):
    """A module of a chapter. ``from .chapter import ...`` works in it."""
    folder = root() / chapter
    package = sys.modules.get(chapter)
    if package is None or package.__path__ != [str(folder)]:
        for loaded in [each for each in sys.modules if each.split(".")[0] == chapter]:
            del sys.modules[loaded]
        package = sys.modules[chapter] = ModuleType(chapter)
        package.__path__ = [str(folder)]
        count_as_library(str(folder) + os.sep)
    return importlib.import_module(f"{chapter}.{name}")


def names_of(chapter):
    """The exercises of a chapter, in its order."""
    return order_of(root() / chapter / CHAPTER)


def find(function_or_name):
    """The exercise of that name. LookupError with the names that are like it."""
    name = getattr(function_or_name, "__name__", function_or_name)
    found = of_name(name)
    if found is None:
        there = [each for chapter in chapters() for each in names_of(chapter)]
        close = difflib.get_close_matches(str(name), there)
        where = f"Did you mean {' or '.join(close)}?" if close else f"{command()} lists them"
        raise LookupError(f"there is no exercise {name!r}. {where}" + ("" if there else f". {NOWHERE}"))
    return found


def exercise_of(answer):
    """The exercise that a learner's function answers."""
    exercise = find(answer)
    if not callable(answer):
        raise TypeError(f"check takes your function: check({exercise.name}), got {answer!r}")
    return exercise


def of_name(name):
    """None, if there is no file of it."""
    place = root()
    for path in sorted(place.glob(f"*/{name}.py")) if place and str(name).isidentifier() else ():
        if name in names_of(path.parent.name):
            return load(path.parent.name, name).EXERCISE
    return None


def course():
    """All exercises, in their order."""
    return [exercise for chapter in chapters() for exercise in of_chapter(chapter)]


def of_chapter(chapter):
    """In their order; none, if there is no such chapter."""
    return [of_name(name) for name in names_of(chapter)] if chapter in chapters() else []


def what_next(exercise):
    """Within the chapter: what a notebook shows must not change with the chapters that come after it."""
    names = names_of(exercise.chapter)
    after = names[names.index(exercise.name) + 1 :]
    if not after:
        return f"This was the last exercise of {exercise.chapter}. {command()} lists them all."
    return f"Next: {after[0]} ({find(after[0]).minutes} minutes)"


# What is listed of them.


class Entry(NamedTuple):
    """An exercise, as it is listed."""

    chapter: str
    name: str
    title: str
    minutes: int
    difficulty: int  # 1 to 5


def entries():
    """All of them, in the order of the course."""
    return [entry for chapter in chapters() for entry in entries_of(chapter)]


def entries_of(chapter):
    """Those of a chapter."""
    return [Entry(chapter, name, **facts_of(root() / chapter / f"{name}.py")) for name in names_of(chapter)]


def once(reads):
    """A file is read anew only if it has changed."""
    kept = cache(lambda path, changed: reads(path))
    return lambda path: kept(path, path.stat().st_mtime_ns)


@once
def order_of(path):
    for statement in parsed(path):
        if isinstance(statement, ast.Assign) and statement.targets[0].id == "ORDER":
            return ast.literal_eval(statement.value)
    return []


@once
def facts_of(path):
    """What ``@exercise(...)`` above the function says."""
    function = next(each for each in parsed(path) if getattr(each, "name", None) == path.stem)
    said = {keyword.arg: keyword.value for keyword in function.decorator_list[0].keywords}
    return {fact: ast.literal_eval(said[fact]) for fact in ("title", "minutes", "difficulty")}


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8")).body
