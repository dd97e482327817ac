"""List scheduling, and branch and bound: the optimal schedule of a small number of passes.

List scheduling: whenever a rank is free, a priority rule selects one of the ready passes. One rule, and a schedule
follows from the placement, the seconds of each pass, and the memory that there is:

    1. an input gradient, which other ranks wait for, or a forward, which gives them work (``first`` says which)
    2. weight gradients, which no rank waits for, only while nothing else is ready or will be soon
    3. a forward only if there is room for what it keeps, and its stage is not too far ``ahead``; nor if a rank's first
       backward would have to wait for it, and so those of all ranks before (``still``)

With memory for P microbatches a rank this takes as long as ZB-H1, with 2P - 1 as ZB-H2; with whole backwards as 1F1B.

Room is not only a free place. On a rank with several stages, microbatches that have passed the first may fill the
memory and wait for one another: none gets through the second. So before it begins a forward, a rank makes sure that the
oldest microbatch that it holds can still enter all its stages, then the next one with what that frees, and so on: the
banker's algorithm (Dijkstra, EWD 623). As the oldest can always go on, on every rank, there is no deadlock.

Branch and bound: of all ready passes, take the one that would finish first. On its rank, either it comes next or one
that starts before it would finish; the search branches over these (Giffler and Thompson, 1960, active schedules). It
prunes nodes whose lower bound (the remaining work of a rank) is not better than the best makespan so far, and nodes
dominated by a visited one: the same passes done, on no rank earlier.
"""

from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from .analysis import Costs
from .schedule import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, COMPUTE, FORWARD


@dataclass(frozen=True)
class Problem:
    placement: tuple[int, ...]  # stage -> rank
    microbatches: int
    costs: Costs
    room: list[float]  # of each rank, in activations of one stage
    halves: bool  # backward as I and W

    @property
    def backward(self):
        return BACKWARD_INPUT if self.halves else BACKWARD

    @property
    def ranks(self):
        return len(self.room)

    @property
    def passes(self):
        return len(self.placement) * self.microbatches * (3 if self.halves else 2)

    @cached_property
    def seconds(self):
        """Kind -> of each stage."""
        return dict(zip(COMPUTE, self.costs.by_stage(len(self.placement)).tolist()))


class Policy(NamedTuple):
    first: str  # FORWARD or BACKWARD: which is begun where both are ready
    patience: float  # W is not begun if another pass is ready within so many times its seconds
    ahead: tuple[int, ...]  # of each stage, the most microbatches between their forward and their backward
    still: float = 0.0  # a rank's first backward is waited for, if it is ready within so many times a forward's seconds


class ListScheduler:
    """``programs[rank]``: its passes, (stage, kind), and ``begins[rank]``, when. Each kind of pass of a stage takes the
    microbatches in turn."""

    def __init__(self, problem, policy):
        self.problem, self.policy = problem, policy
        ranks, stages = range(problem.ranks), range(len(problem.placement))
        self.stages_of = [[stage for stage in stages if problem.placement[stage] == rank] for rank in ranks]
        self.programs = [[] for _ in ranks]
        self.begins = [[] for _ in ranks]
        self.free = [0.0 for _ in ranks]  # when the rank is done with what it does
        self.room = list(problem.room)
        self.forwards, self.backwards, self.weights = ([0 for _ in stages] for _ in range(3))  # begun, of each stage
        self.released = self.weights if problem.halves else self.backwards
        self.inputs, self.gradients = ([[] for _ in stages] for _ in range(2))  # when they are there, in turn
        self.inputs[0] = [0.0] * problem.microbatches
        self.moments = [(0.0, rank) for rank in ranks]  # when a rank may find something to do
        while self.moments:
            now, rank = heappop(self.moments)
            if now >= self.free[rank]:
                self._go_on(rank, now)

    @property
    def makespan(self):
        return max(self.free)

    @property
    def spans(self):
        """Seconds of each rank from the beginning of its first pass to the end of its last."""
        return [end - begins[0] for begins, end in zip(self.begins, self.free)]

    def _go_on(self, rank, now):
        ready, soon = (), inf
        for moment, turn in self._forwards_and_backwards(rank):
            if moment > now:
                soon = min(soon, moment)
            elif not ready or turn < ready:
                ready = turn
        if ready:
            _, stage, kind = ready
            if kind != FORWARD or not self._waits(rank, -stage, soon - now):
                self._begin(rank, -stage, kind, now)
            return
        for stage in self.stages_of[rank] if self.problem.halves else ():
            if self.weights[stage] < self.backwards[stage]:
                if soon - now >= self.policy.patience * self.problem.seconds[BACKWARD_WEIGHT][stage]:
                    self._begin(rank, stage, BACKWARD_WEIGHT, now)
                return

    def _forwards_and_backwards(self, rank):
        """(when it is ready, its turn: what is first, then the last stage)"""
        for stage in self.stages_of[rank]:
            forwards, backwards = self.forwards[stage], self.backwards[stage]
            if backwards < len(self.gradients[stage]):
                yield self.gradients[stage][backwards], (self.policy.first != BACKWARD, -stage, self.problem.backward)
            near = forwards - backwards < self.policy.ahead[stage]
            if near and forwards < len(self.inputs[stage]) and self._has_room(rank, stage):
                yield self.inputs[stage][forwards], (self.policy.first != FORWARD, -stage, FORWARD)

    def _has_room(self, rank, stage):
        room, stages = self.room[rank] - 1 + 1e-9, self.stages_of[rank]
        if room < 0 or room >= len(stages) - 1:
            return room >= 0
        begun = {each: self.forwards[each] + (each == stage) for each in stages}
        for microbatch in {*begun.values()} - {max(begun.values())}:  # the oldest that has to enter one stage more
            older = sum(max(0, min(begun[each], microbatch) - self.released[each]) for each in stages)
            if sum(begun[each] <= microbatch for each in stages) > room + older:
                return False
        return True

    def _begin(self, rank, stage, kind, now):
        end = now + self.problem.seconds[kind][stage]
        self.programs[rank].append((stage, kind))
        self.begins[rank].append(now)
        self.free[rank] = end
        heappush(self.moments, (end, rank))
        if kind == FORWARD:
            self.forwards[stage] += 1
            self.room[rank] -= 1
            last = stage == len(self.inputs) - 1
            self._hand_on(rank, end, stage if last else stage + 1, self.gradients if last else self.inputs)
        elif kind == BACKWARD_WEIGHT:
            self.weights[stage] += 1
            self.room[rank] += self.problem.costs.kept_for_weights
        else:
            self.backwards[stage] += 1
            self.room[rank] += 1 - self.problem.costs.kept_for_weights if self.problem.halves else 1
            if stage > 0:
                self._hand_on(rank, end, stage - 1, self.gradients)

    def _hand_on(self, rank, end, stage, results):
        there = self.problem.placement[stage]
        moment = end + self.problem.costs.message * (there != rank)
        results[stage].append(moment)
        if self.free[there] <= moment:  # or it looks when it is
            heappush(self.moments, (moment, there))

    def _waits(self, rank, stage, seconds):
        """For the first backward, that is ready in so many seconds."""
        soon = seconds < self.policy.still * self.problem.seconds[FORWARD][stage]
        return soon and not any(self.backwards[each] for each in self.stages_of[rank])


class BranchAndBound:
    """The shortest order of few passes: ``programs[rank]``, as in ``ListScheduler``; None if in so many ``tries`` none
    is shorter than ``makespan``."""

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
