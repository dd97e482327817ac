"""Where the exercises are: a folder a chapter, a file an exercise, outside of the package, for they are spoilers.

They are looked for in TINYDIST_EXERCISES; in the current folder and those above it, under ``solutions``; and beside the
package. The file that is named like the exercise is loaded, and no other.
"""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import tinydist

from ..simulator.call_sites import count_as_library

FOLDER, CHAPTER = "solutions", "chapter.py"


class NoExercises(LookupError):
    """The package is here, and the exercises are not."""


def root():
    """The folder of the chapters; None: there is none."""
    named = os.environ.get("TINYDIST_EXERCISES")
    here, beside = Path.cwd(), Path(tinydist.__file__).resolve().parents[1]
    places = [Path(named)] if named else [folder / FOLDER for folder in (here, *here.parents, beside)]
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


def exercise(name):
    """The exercise of that name; None if there is no file of it."""
    place = root()
    for path in sorted(place.glob(f"*/{name}.py")) if place and str(name).isidentifier() else ():
        if name in names_of(path.parent.name):
            return load(path.parent.name, name).EXERCISE
    return None
