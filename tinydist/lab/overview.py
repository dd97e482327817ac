"""How far the reader has come, chapter by chapter: what the map of the notebooks shows."""

from contextlib import chdir
from pathlib import Path

from .standing import Standing
from .syllabus import course


class Overview:
    """A table: the exercises of each chapter, those that are done, and the next one."""

    def __init__(self):
        with chdir(".." if Path.cwd().name == "notebooks" else "."):  # the reader's exercises are beside them
            standing = Standing(course())
        self.rows = [self.row(standing, chapter) for chapter in standing.chapters]

    def row(self, standing, chapter):
        left = standing.following(standing.of_chapter(chapter))
        following = f"{left.name}, {left.minutes} minutes" if left else "all done"
        return chapter, standing.dots(chapter), following

    def __repr__(self):
        return "\n".join(f"{chapter:<24} {dots:<6} {following}" for chapter, dots, following in self.rows)

    def _repr_markdown_(self):
        lines = [
            f"| [{chapter}](../exercises/{chapter}.ipynb) | {dots} | {next_} |" for chapter, dots, next_ in self.rows
        ]
        return "\n".join(["| exercises | done | next |", "|---|---|---|", *lines])
