"""How far the reader has come, chapter by chapter: what the map of the notebooks shows."""

from contextlib import chdir

from . import progress
from .find import chapters, of_chapter, root

DONE, LEFT = "●", "○"


class Overview:
    """A table: the exercises of each chapter, those that are done, and the next one."""

    def __init__(self):
        with chdir(root().parent):  # progress is kept in exercises/, beside the folder of the notebooks
            done = progress.load()
        self.rows = [self.row(chapter, done) for chapter in chapters()]

    def row(self, chapter, done):
        exercises = of_chapter(chapter)
        passed = [done.get(each.name, progress.NEW)["passed"] for each in exercises]
        left = [each for each, is_done in zip(exercises, passed) if not is_done]
        following = f"{left[0].name}, {left[0].minutes} minutes" if left else "all done"
        return chapter, "".join(DONE if each else LEFT for each in passed), following

    def __repr__(self):
        return "\n".join(f"{chapter:<24} {dots:<6} {following}" for chapter, dots, following in self.rows)

    def _repr_markdown_(self):
        lines = [
            f"| [{chapter}](../exercises/{chapter}.ipynb) | {dots} | {next_} |" for chapter, dots, next_ in self.rows
        ]
        return "\n".join(["| exercises | done | next |", "|---|---|---|", *lines])
