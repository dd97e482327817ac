"""The shortest order of few passes: branch and bound.

Of all passes that can be next, one is done first. On its rank, either it comes next or one that begins before it would
be done; each of these is tried (Giffler and Thompson, 1960, active schedules). Left out is what cannot become shorter
than the best so far, as a rank has too much left to do, and what is nowhere earlier than something tried before that
had done the same.
"""

from .actions import BACKWARD_WEIGHT, FORWARD


class BranchAndBound:
    """``programs[rank]``, as in ``ListScheduler``; None if in so many ``tries`` none is shorter than ``makespan``."""

    def __init__(self, problem, makespan, tries):
        self.problem, self.makespan, self.tries, self.programs = problem, makespan, tries, None
        kinds = [FORWARD, problem.backward] + [BACKWARD_WEIGHT] * problem.halves
        self.ends = {(stage, kind): [] for stage in range(len(problem.placement)) for kind in kinds}
        self.before = {}  # passes done -> when, of those tried
        self._try([()] * problem.ranks, [0.0] * problem.ranks)

    def _try(self, programs, free):
        if sum(map(len, programs)) == self.problem.passes:
            self.programs, self.makespan = programs, max(free)
        following = [each for stage, kind in self.ends for each in self._next(stage, kind, free)]
        done, rank = min([(end, rank) for _, end, rank, *_ in following], default=(0, 0))
        for begin, end, there, *each in sorted(following):
            if there == rank and (begin < done or end == done) and self.tries > 0:
                self.tries -= 1
                self.ends[*each].append(end)
                after = [*free[:rank], end, *free[rank + 1 :]]
                if self._shorter(after) and self._new(after):
                    self._try([*programs[:rank], (*programs[rank], tuple(each)), *programs[rank + 1 :]], after)
                self.ends[*each].pop()

    def _next(self, stage, kind, free):
        """(begin, end, rank, stage, kind), if its microbatch is there, and room for it."""
        rank, need = self.problem.placement[stage], self._need(stage, kind)
        ready, turn = self.ends[need] if need else [0.0] * self.problem.microbatches, len(self.ends[stage, kind])
        if turn < len(ready) and (kind != FORWARD or self._room(rank) >= 1 - 1e-9):
            away = need and self.problem.placement[need[0]] != rank
            begin = max(free[rank], ready[turn] + (self.problem.costs.message if away else 0.0))
            yield begin, begin + self.problem.seconds[kind][stage], rank, stage, kind

    def _need(self, stage, kind):
        """The pass that it waits for."""
        if kind == FORWARD:
            return (stage - 1, kind) if stage else None
        if kind == BACKWARD_WEIGHT:
            return stage, self.problem.backward
        return (stage, FORWARD) if stage == len(self.problem.placement) - 1 else (stage + 1, kind)

    def _room(self, rank):
        kept = self.problem.costs.kept_for_weights if self.problem.halves else 0.0
        freed = {FORWARD: -1.0, self.problem.backward: 1.0 - kept, BACKWARD_WEIGHT: kept}
        mine = [each for each in self.ends if self.problem.placement[each[0]] == rank]
        return self.problem.room[rank] + sum(freed[kind] * len(self.ends[stage, kind]) for stage, kind in mine)

    def _shorter(self, free):
        left = list(free)
        for (stage, kind), ends in self.ends.items():
            times = self.problem.microbatches - len(ends)
            left[self.problem.placement[stage]] += times * self.problem.seconds[kind][stage]
        return max(left) < self.makespan - 1e-9

    def _new(self, free):
        done, times = (
            tuple(map(len, self.ends.values())),
            [*free, *[end for ends in self.ends.values() for end in ends]],
        )
        tried = self.before.setdefault(done, [])
        if any(all(a <= b for a, b in zip(other, times)) for other in tried):
            return False
        tried.append(times)
        return True
