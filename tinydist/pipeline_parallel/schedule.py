"""A schedule: for each rank, the actions that it does, one after another.

    rank 0   0F0 0F1 0B0 0B1        a table of steps, not of seconds: how long an action takes, and how long it waits
    rank 1   1F0 1B0 1F1 1B1        for another, follows from it (analysis.py)

It is data: it can be printed, verified (verifier.py), timed (analysis.py), drawn, saved (torch_csv.py), and executed
with real tensors (worker.py).
"""

from dataclasses import dataclass
from functools import cached_property

from ..rules import each_of, integer, listed, takes, whole
from .actions import MESSAGES, Action, Overlap


@takes(name=str, programs=each_of(tuple | list), stages=listed, microbatches=listed, steps=listed)
@dataclass(frozen=True)
class Schedule:
    name: str
    programs: tuple[tuple[Action | Overlap, ...], ...]  # by rank
    stages: int
    microbatches: int  # of all its training steps
    steps: int = 1

    def __repr__(self):
        size = f"{len(self.programs)} ranks, {self.stages} stages, {self.microbatches} microbatches"
        return f"<schedule {self.name}: {size}>"

    def __str__(self):
        return self.grid()

    @property
    def ranks(self):
        return len(self.programs)

    @cached_property
    def rank_of(self) -> dict[int, int]:
        """Stage -> its rank."""
        return {part.stage: rank for rank, _, part in self.all_parts()}

    def passes(self, rank) -> list[Action]:
        """The actions of a rank, overlaps as their two parts."""
        self.check_rank(rank)
        return [part for each in self.programs[rank] for part in each.parts]

    def all_parts(self):
        """(rank, step, action), overlaps as their two parts."""
        for rank, program in enumerate(self.programs):
            for step, each in enumerate(program):
                for part in each.parts:
                    yield rank, step, part

    def check_rank(self, rank):
        if not (whole(rank) and rank < self.ranks):
            raise ValueError(f"{self!r} has ranks 0 to {self.ranks - 1}, but rank {rank} was asked for")

    def stages_of(self, rank) -> list[int]:
        self.check_rank(rank)
        return sorted(stage for stage, there in self.rank_of.items() if there == rank)

    def step_of(self, microbatch):
        """The training step that it is of."""
        return microbatch * self.steps // self.microbatches

    @cached_property
    def has_messages(self):
        return any(part.kind in MESSAGES for _, _, part in self.all_parts())

    @takes(start=integer, end=integer, mark=tuple)
    def grid(self, start=0, end=None, mark=None):
        """The steps from ``start`` to ``end`` as text. ``mark``, a (rank, step), is pointed at."""
        rows = [
            [f"> {each} <" if (rank, step) == mark else str(each) for step, each in enumerate(program)][start:end]
            for rank, program in enumerate(self.programs)
        ]
        width = max((len(cell) for row in rows for cell in row), default=0)
        label = len(f"rank {self.ranks - 1}")
        lines = [
            f"{f'rank {rank}':{label}}   " + " ".join(f"{cell:{width}}" for cell in row)
            for rank, row in enumerate(rows)
        ]
        return "\n".join(line.rstrip() for line in lines)
