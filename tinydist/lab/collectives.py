"""The second axis, where collectives are called: which, and how many bytes each rank sends by them."""

from collections import Counter
from itertools import dropwhile

from .errors import Wrong
from .messages import are, many, smaller_numbers, started
from .pictures import draw_traffic
from .target import Target


class Collectives(Target):
    """On each rank those of the reference, in its order, and as large. ``things``: what each is for, in words.
    ``first``: names of others that may come before them. ``together``: only all bytes count, in as many calls as you
    like."""

    name = "collectives"

    def __init__(self, holds, things="calls", advice="", name="collectives", first=(), together=False):
        super().__init__(holds)
        self.things, self.advice, self.name, self.first, self.together = things, advice, name, first, together

    def seen(self, trial):
        if trial.error is not None:
            return None
        return [self.of_rank(trial, rank) for rank in range(trial.case.ranks)]

    def general(self, trial, right):
        return smaller_numbers(trial, right)

    def of_rank(self, trial, rank):
        calls = dropwhile(lambda call: call.name in self.first, started(trial.run, rank))
        if not self.together:
            return [(call.name, call.nbytes) for call in calls]
        sums = Counter()
        for call in calls:
            sums[call.name] += call.nbytes
        return list(sums.items())

    def judge(self, exercise, trial, right):
        for rank, (mine, its) in enumerate(zip(self.seen(trial), self.seen(right))):
            names = sorted({name for name, _ in its})
            others = sorted({name for name, _ in mine} - set(names))
            if others:
                raise Wrong(
                    f"you call {' and '.join(others)}, where {' and '.join(names)} is enough", draw_traffic(trial)
                )
            name = names[0].replace("_", "-") if len(names) == 1 else "collective"
            if self.together and mine != its:
                have, want = (sum(nbytes for _, nbytes in calls) for calls in (mine, its))
                what = f"{name}s of {have:,} bytes in all" if have else f"no {name}"
                raise Wrong(
                    f"rank {rank} makes {what}, where {want:,} bytes are right: {self.things}",
                    draw_traffic(trial),
                )
            if len(mine) != len(its):
                raise Wrong(
                    f"rank {rank} makes {many(len(mine), name)}, where {are(len(its))} right: {self.things}",
                    draw_traffic(trial),
                )
            for place, ((name, have), (_, want)) in enumerate(zip(mine, its)):
                if have != want:
                    which = f"{name.replace('_', '-')} {place} of rank {rank}"
                    text = f"{which} has {have:,} bytes, where {want:,} are right. {self.advice}"
                    raise Wrong(text.rstrip(), draw_traffic(trial))
