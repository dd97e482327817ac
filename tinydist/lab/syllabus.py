"""What the files of the exercises say of themselves, read and not run: at once, and without torch."""

import ast
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
    return [Entry(chapter, name, **facts_of(root() / chapter / f"{name}.py", name)) for name in order_of(chapter)]


def order_of(chapter):
    for statement in parsed(root() / chapter / CHAPTER):
        if isinstance(statement, ast.Assign) and statement.targets[0].id == "ORDER":
            return ast.literal_eval(statement.value)
    return []


def facts_of(path, name):
    """What ``@exercise(...)`` above the function says."""
    function = next(each for each in parsed(path) if getattr(each, "name", None) == name)
    said = {keyword.arg: keyword.value for keyword in function.decorator_list[0].keywords}
    return {fact: ast.literal_eval(said[fact]) for fact in ("title", "minutes", "difficulty")}


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8")).body
