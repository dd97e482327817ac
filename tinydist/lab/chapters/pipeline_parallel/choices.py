"""The first second in which a rank does one pass, or none, where another had been better.

Better is what another rank needs: F first, but no more microbatches between F and I than min(P - rank, budget), which
keep all later ranks busy; then I; then W, which no rank needs. F, I and W take 1 s each.
"""

from collections import defaultdict

from ....pipeline_parallel.actions import BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, Action
from ...messages import many


def first_worse(schedule, analysis, budget):
    """In words; empty if there is none."""
    choices = [Choices(schedule, analysis, budget, rank) for rank in range(schedule.ranks)]
    worse = sorted(each for choice in choices for each in choice.worse())
    worse += sorted(each for choice in choices for each in choice.ahead)  # if there is nothing else
    return worse[0][-1] if worse else ""


class Choices:
    """Of a rank, second by second."""

    def __init__(self, schedule, analysis, budget, rank):
        self.schedule, self.budget, self.rank = schedule, budget, rank
        self.limit = min(schedule.ranks - rank, budget)
        self.begins = dict(zip(map(round, analysis.start[rank]), schedule.programs[rank]))
        self.ends = {
            action: end for program, ends in zip(schedule.programs, analysis.end) for action, end in zip(program, ends)
        }
        self.did = defaultdict(set)  # kind -> microbatches
        self.ahead = []  # forwards that are too many, where there was nothing better to do

    def worse(self):
        """[(second, rank, words)]"""
        found, ends = [], max(self.begins)
        for now in range(ends + 1):
            action = self.begins.get(now)
            words = self.instead_of(action, now) if action else self.instead_of_waiting(now)
            if words:
                found.append(self.told(now, words))
            if action:
                self.did[action.kind].add(action.microbatch)
        return found

    def told(self, now, words):
        return now, self.rank, f"At {now} s, rank {self.rank} {words}"

    def instead_of_waiting(self, now):
        could = [*(self.forwards(now) if self.has_room() else []), *self.backwards(now), *self.weights()]
        if could:
            return f"does nothing, while {could[0]} could be done"
        if self.forwards(now) and self.held >= self.budget and self.in_flight > self.limit:
            return f"does nothing, since its budget is full. {self.too_many()}"

    def instead_of(self, action, now):
        forwards, backwards = self.forwards(now), self.backwards(now)
        if action.kind == FORWARD:
            if self.in_flight >= self.limit:
                self.ahead.append(self.told(now, f"does {action}. {self.too_many()}"))
                if backwards and self.rank > 0:
                    return f"does {action}, while rank {self.rank - 1} needs {backwards[0]}. {self.too_many()}"
        elif forwards and self.has_room():
            last = self.rank == self.schedule.ranks - 1
            why = "no rank needs W" if last else f"rank {self.rank + 1} needs it"
            return f"does {action}, while {forwards[0]} could be done: {why}"
        elif action.kind == BACKWARD_WEIGHT and backwards and self.rank > 0:
            return f"does {action}, while {backwards[0]} could be done: rank {self.rank - 1} needs it"

    def too_many(self):
        return (
            f"{many(self.in_flight, 'other')} {'is' if self.in_flight == 1 else 'are'} between F and I, where "
            f"min(P - rank, budget) = {self.limit} in all keep the later ranks busy"
        )

    def has_room(self):
        return self.in_flight < self.limit and self.held < self.budget

    @property
    def in_flight(self):
        return len(self.did[FORWARD]) - len(self.did[BACKWARD_INPUT])

    @property
    def held(self):
        return len(self.did[FORWARD]) - len(self.did[BACKWARD_WEIGHT])

    # What could be done:

    def forwards(self, now):
        left = set(range(self.schedule.microbatches)) - self.did[FORWARD]
        return self.those(FORWARD, left, self.rank - 1, now)

    def backwards(self, now):
        return self.those(BACKWARD_INPUT, self.did[FORWARD] - self.did[BACKWARD_INPUT], self.rank + 1, now)

    def weights(self):
        return self.those(BACKWARD_WEIGHT, self.did[BACKWARD_INPUT] - self.did[BACKWARD_WEIGHT])

    def those(self, kind, microbatches, source=-1, now=0):
        """Of ``microbatches``, those for which what they need of rank ``source`` is there, if there is such a rank."""
        there = [each for each in sorted(microbatches) if self.ends.get(Action(source, kind, each), 0) <= now]
        return [Action(self.rank, kind, each) for each in there]
