"""The second axis, where collectives are called: which, how many bytes each rank sends by them, and who waits."""

from itertools import dropwhile

from ..simulator.record import Issue, Wait
from .errors import Wrong
from .messages import are, many, of, smaller_numbers
from .pictures import draw_traffic
from .target import Target


class Waits(Target):
    """Each collective is waited for."""

    name = "waits"

    def judge(self, exercise, trial, right):
        for rank, program in enumerate(trial.run.record.programs):
            forgotten = set(started(trial, rank)) - {entry.transfer for entry in of(program, Wait)}
            if forgotten:
                raise Wrong(
                    f"rank {rank} does not wait for {many(len(forgotten), 'collective')}: call wait() on what a call "
                    "with async_op=True returns, before you read the result. Else nobody knows whether the numbers "
                    "are there"
                )


class Collectives(Target):
    """On each rank those of the reference, in its order, and as large. ``things``: what each is for, in words.
    ``first``: names of others that may come before them."""

    name = "collectives"

    def __init__(self, holds, things="calls", advice="", name="collectives", first=()):
        super().__init__(holds)
        self.things, self.advice, self.name, self.first = things, advice, name, first

    def seen(self, trial):
        if trial.error is not None:
            return None
        return [self.of_rank(trial, rank) for rank in range(trial.case.ranks)]

    def general(self, trial, right):
        return smaller_numbers(trial, right)

    def of_rank(self, trial, rank):
        calls = dropwhile(lambda call: call.name in self.first, started(trial, rank))
        return [(call.name, call.nbytes) for call in calls]

    def judge(self, exercise, trial, right):
        for rank, (mine, its) in enumerate(zip(self.seen(trial), self.seen(right))):
            names = sorted({name for name, _ in its})
            others = sorted({name for name, _ in mine} - set(names))
            if others:
                raise Wrong(
                    f"you call {' and '.join(others)}, where {' and '.join(names)} is enough", draw_traffic(trial)
                )
            if len(mine) != len(its):
                name = names[0].replace("_", "-") if len(names) == 1 else "collective"
                raise Wrong(
                    f"rank {rank} makes {many(len(mine), name)}, where {are(len(its))} right: {self.things}",
                    draw_traffic(trial),
                )
            for place, ((name, have), (_, want)) in enumerate(zip(mine, its)):
                if have != want:
                    which = f"{name.replace('_', '-')} {place} of rank {rank}"
                    text = f"{which} has {have:,} bytes, where {want:,} are right. {self.advice}"
                    raise Wrong(text.rstrip(), draw_traffic(trial))


def started(trial, rank):
    """The transfers of a rank, in the order in which it started them."""
    return [entry.transfer for entry in of(trial.run.record.programs[rank], Issue)]
