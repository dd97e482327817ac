"""The first second in which a rank does one pass, or none, where another had been better.

Better is what another rank needs: F first, but no more microbatches between F and I than are on their way down and
back, which keeps all later ranks busy; then I; then W, which no rank needs. F, I and W take 1 s each, a message whole
seconds.
"""

from tinydist.lab.author import many
from tinydist.pipeline_parallel.schedule import BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, Action


def first_worse(schedule, analysis, budget, message):
    """In words; empty if there is none."""
    ends = {action: end for program, ends in zip(schedule.programs, analysis.end) for action, end in zip(program, ends)}
    found = []  # (is anything else better?, second, rank, words)
    for rank, (program, starts) in enumerate(zip(schedule.programs, analysis.start)):
        begins = dict(zip(map(round, starts), program))
        for now in range(max(begins) + 1):
            better, words = Choice(schedule, ends, budget, message, rank, now).instead_of(begins.get(now))
            found += [(not better, now, rank, f"At {now} s, rank {rank} {words}")] * bool(words)
    return min(found)[-1] if found else ""


class Choice:
    """What a rank could do in a second."""

    def __init__(self, schedule, ends, budget, message, rank, now):
        self.rank, self.last = rank, schedule.ranks - 1
        self.limit = min(1 + (1 + message) * (self.last - rank), budget)
        begun = [action for action in schedule.programs[rank] if ends[action] <= now]
        did = {kind: {each.microbatch for each in begun if each.kind == kind} for kind in "FIW"}
        self.in_flight, held = len(did[FORWARD] - did[BACKWARD_INPUT]), len(did[FORWARD] - did[BACKWARD_WEIGHT])
        self.has_room = self.in_flight < self.limit and held < budget

        def is_there(action):
            return action not in ends or ends[action] + message * (action.stage != rank) <= now

        def those(kind, microbatches, source):
            there = [each for each in sorted(microbatches) if is_there(Action(source, kind, each))]
            return [Action(rank, kind, each) for each in there]

        self.forwards = those(FORWARD, set(range(schedule.microbatches)) - did[FORWARD], rank - 1)
        self.inputs = those(BACKWARD_INPUT, did[FORWARD] - did[BACKWARD_INPUT], rank + 1)
        self.weights = those(BACKWARD_WEIGHT, did[BACKWARD_INPUT] - did[BACKWARD_WEIGHT], None)

    def instead_of(self, action):
        """(is anything better?, in words): no words, if nothing is wrong with it."""
        could = [*(self.forwards if self.has_room else []), *self.inputs, *self.weights]
        if action is None:
            return True, f"does nothing, while {could[0]} could be done" if could else ""
        if action.kind == FORWARD and self.in_flight >= self.limit:
            needed = f", while rank {self.rank - 1} needs {self.inputs[0]}" if self.inputs and self.rank else ""
            return bool(needed), f"does {action}{needed}. {self.too_many()}"
        if action.kind != FORWARD and self.forwards and self.has_room:
            why = "no rank needs W" if self.rank == self.last else f"rank {self.rank + 1} needs it"
            return True, f"does {action}, while {self.forwards[0]} could be done: {why}"
        if action.kind == BACKWARD_WEIGHT and self.inputs and self.rank:
            return True, f"does {action}, while {self.inputs[0]} could be done: rank {self.rank - 1} needs it"
        return False, ""

    def too_many(self):
        return (
            f"{many(self.in_flight, 'other')} {'is' if self.in_flight == 1 else 'are'} between F and I, where "
            f"{self.limit} in all keep the later ranks busy, or fill the budget"
        )
