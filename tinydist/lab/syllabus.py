"""What the files of the exercises say of themselves, read and not run: at once, and without torch."""

import ast
from functools import cache
from typing import NamedTuple

from .find import CHAPTER, chapters, root


class Entry(NamedTuple):
    """An exercise, as it is listed."""

    chapter: str
    name: str
    title: str
    minutes: int
    difficulty: int  # 1 to 5


def course():
    """All entries, in the order of the course."""
    return [entry for chapter in chapters() for entry in of_chapter(chapter)]


def of_chapter(chapter):
    """In their order."""
    folder = root() / chapter
    return [Entry(chapter, name, **facts_of(folder / f"{name}.py")) for name in order_of(folder / CHAPTER)]


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
