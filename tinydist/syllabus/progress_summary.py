"""Summary of progress: exercises done per chapter, and the next one. Does not import torch."""

import difflib
import os
from contextlib import chdir
from pathlib import Path

from ..console.command_name import command
from . import progress
from .atomic_files import Trouble
from .registry import entries

DONE, LEFT = "●", "○"


class NotebookError(Trouble):
    """The reader's notebook is not there, or cannot be run."""


class Progress:
    """Of some entries of the course, in their order."""

    def __init__(self, entries):
        self.entries, self.done = list(entries), progress.load()

    def passed(self, entry):
        return self.done.get(entry.name, progress.NEW)["passed"]

    @property
    def chapters(self):
        return list(dict.fromkeys(entry.chapter for entry in self.entries))

    def of_chapter(self, chapter):
        return [entry for entry in self.entries if entry.chapter == chapter]

    def following(self, entries=None):
        """The first of them that is not done; None: all are."""
        entries = self.entries if entries is None else entries
        return next((entry for entry in entries if not self.passed(entry)), None)

    def after(self, name):
        """The first that is not done, after that one; behind the last, from the beginning."""
        place = [entry.name for entry in self.entries].index(name) + 1 if name else 0
        return self.following(self.entries[place:] + self.entries[:place])

    def named(self, name=None):
        """The entry of that name; else the next one. LookupError."""
        entries = {entry.name: entry for entry in self.entries}
        entry = entries.get(name) if name else self.following()
        if entry is None:
            close = difflib.get_close_matches(name or "", entries)
            meant = f". Did you mean {' or '.join(close)}?" if close else ""
            raise LookupError(f"there is no exercise {name!r}{meant}" if name else "All exercises are done")
        return entry

    @property
    def count(self):
        return f"{sum(map(self.passed, self.entries))} of {len(self.entries)} done"

    def dots(self, chapter):
        return "".join(DONE if self.passed(entry) else LEFT for entry in self.of_chapter(chapter))

    def bars(self):
        """A line for each chapter."""
        return "\n".join(f"{chapter:<28} {self.dots(chapter)}" for chapter in self.chapters)

    def in_words(self, entry=None, what="Next"):
        """Which exercise comes: that one, or the first that is not done; and where it is."""
        entry = entry or self.following()
        if entry is None:
            return "All exercises are done."
        path = shown((progress.folder() or Path("exercises")) / f"{entry.chapter}.ipynb")
        return f"{what}: {entry.name}, {entry.minutes} minutes: {entry.title}, in {path}"


class Overview:
    """On the map of the notebooks, a table: the exercises of each chapter, those that are done, and the next one."""

    def __init__(self):
        with chdir(".." if Path.cwd().name == "notebooks" else "."):  # the reader's exercises are beside them
            summary = Progress(entries())
        self.rows = [self.row(summary, chapter) for chapter in summary.chapters]

    def row(self, summary, chapter):
        left = summary.following(summary.of_chapter(chapter))
        following = f"{left.name}, {left.minutes} minutes" if left else "all done"
        return chapter, summary.dots(chapter), following

    def __repr__(self):
        wide = max(len(chapter) for chapter, _, _ in self.rows)
        return "\n".join(f"{chapter:<{wide}} {dots:<6} {following}" for chapter, dots, following in self.rows)

    def _repr_markdown_(self):
        lines = [
            f"| [{chapter}](../exercises/{chapter}.ipynb) | {dots} | {next_} |" for chapter, dots, next_ in self.rows
        ]
        return "\n".join(["| exercises | done | next |", "|---|---|---|", *lines])


def within_reach():
    """Those that have a notebook in the reader's folder; all, where there is no folder."""
    folder = progress.folder()
    return [each for each in entries() if not folder or (folder / f"{each.chapter}.ipynb").exists()]


def path_of(exercise):
    folder = progress.folder()
    path = folder / f"{exercise.chapter}.ipynb" if folder else None
    if path is None or not path.exists():
        there = f"in {folder}" if folder else f"no folder exercises in {Path.cwd()}"
        raise NotebookError(
            f"the notebook {exercise.chapter}.ipynb was not found: {there}. Go to the folder of tinydist"
        )
    return path


def shown(path):
    """As the reader finds it from where he is."""
    here = Path.cwd()
    near = path.is_relative_to(here) and path.parent != here
    return (path.relative_to(here) if near else Path(path.parent.name, path.name)).as_posix()


def unwritable(path):
    """None, or what to do."""
    if not os.access(path, os.W_OK):
        copy = command("copy-course", "FOLDER")
        return f"{path} is not writable: `{copy}` copies the course to a writable folder"
