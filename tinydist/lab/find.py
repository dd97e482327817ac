"""Where the exercises are: a folder a chapter, a file an exercise, outside of the package, for they are spoilers.

They are looked for in TINYDIST_EXERCISES; in the current folder and those above it, under ``solutions``; and beside the
package, or in it, if it was installed. The file that is named like the exercise is loaded, and no other.
"""

import difflib
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import tinydist

from ..console.shell import command
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
    return load(chapter, "chapter").ORDER


def find(function_or_name):
    """The exercise of that name. LookupError with the names that are like it."""
    name = getattr(function_or_name, "__name__", function_or_name)
    found = of_name(name)
    if found is None:
        close = difflib.get_close_matches(str(name), [each.name for each in course()])
        where = f"Did you mean {' or '.join(close)}?" if close else f"{command()} lists them"
        raise LookupError(f"there is no exercise {name!r}. {where}" + ("" if course() else f". {NOWHERE}"))
    return found


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


def following(exercise):
    """The next one of its chapter; None after the last."""
    names = [each.name for each in of_chapter(exercise.chapter)]
    place = names.index(exercise.name) + 1
    return find(names[place]) if place < len(names) else None
