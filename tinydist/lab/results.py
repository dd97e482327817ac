"""Checks of values: what an answer returns or writes into its arguments, compared with the reference.

Floating-point sums may be taken in a different order, so results may differ by rounding.
"""

import inspect
from contextlib import suppress
from types import SimpleNamespace

import torch

from .cases import Alone, Trial
from .dependence import Worlds, finite
from .differences import (
    close,
    difference,
    misplaced,
    ratio,
    same,
    same_form,
    slightly_off,
    times,
    unequal,
    unlike,
    untouched,
    whose,
    words_of,
)
from .errors import Wrong
from .leaves import in_place, kind, kind_of, leaves, shape_of, shares_memory, tensors_of, written
from .messages import left_open
from .target import Malformed, Target


class Values(Target):
    """``names``: of the things that a tuple holds. ``scratch``: the answer may overwrite its arguments.
    ``explain``: functions that look at a whole wrong result, and give the reason if they know it (differences.py).
    ``tell``: are right numbers told? Not those that the task is to predict. ``whole``: a mistake is told only if it
    gives the same in all places, where one small number is soon the same by chance. ``ways``: words -> what somebody
    may compute instead, of a case's arguments: told if it is the same in all cases."""

    name, decides = "values", True

    def __init__(self, holds, names=(), scratch=False, explain=(), tell=True, whole=False, ways=()):
        super().__init__(holds)
        self.ways = dict(ways)
        self.names, self.scratch, self.explain, self.tell, self.whole = names, scratch, explain, tell, whole
        self.in_place = None  # does the reference write into its arguments? It is known when it has run

    def judge(self, exercise, trial, right):
        self.in_place = in_place(right)
        for rank, (mine, its) in enumerate(zip(trial.returned, right.returned)):
            self.form(trial, rank, mine, its)
        mine, its = self.seen(trial), self.seen(right)
        for (rank, path), want in its.items():
            same_form(words_of(trial, rank, path), mine[rank, path], want)
        wrong = unequal(mine, its, trial.case.rtol)
        if wrong:
            told = difference(trial, wrong[0], mine[wrong[0]], its[wrong[0]])
            raise Wrong(told if self.tell else told.partition(", where ")[0] + ", and that is not right")
        if not self.scratch and not self.in_place:
            untouched(trial, list(inspect.signature(exercise.reference).parameters), right)

    def form(self, trial, rank, mine, its):
        on = "" if trial.case.ranks == 1 else f"rank {rank} returned "
        if inspect.isgenerator(mine) or inspect.iscoroutine(mine):
            raise Malformed(
                f"{on or 'it returned '}{kind(mine)}: calling a generator or async function does not run its body"
            )
        if its is None:
            given = [each for each in trial.arguments[rank] if isinstance(each, torch.Tensor)]
            if isinstance(mine, torch.Tensor) and not any(mine is t or shares_memory(mine, t) for t in given):
                raise Malformed(
                    f"{f'rank {rank}' if on else 'it'} returns a new tensor, but the task is to work in place: the "
                    "result must be in the tensor itself, for example with tensor.copy_(result) or by writing into "
                    "its parts"
                )
            return
        missing = [path for path in leaves(its, self.names) if path not in leaves(mine, self.names)]
        if missing or len(leaves(mine, self.names)) != len(leaves(its, self.names)):
            for name, one, other in things(self.names, mine, its):
                if leaves(one).keys() != leaves(other).keys():
                    there = f"{on or 'it returned '}{name} as {kind(one)}"
                    raise Malformed(f"{there}, where {shape_of(other)} is right")
            raise Malformed(f"{on or 'it returned '}{kind_of(mine)}, where {self.asked(its)}")

    def asked(self, its):
        if isinstance(its, tuple | list) and len(self.names) == len(its):
            return f"{len(its)} {'tensors' if isinstance(its[0], torch.Tensor) else 'things'} are right: " + ", ".join(
                self.names
            )
        return "it should return " + ("a tensor" if isinstance(its, torch.Tensor) else shape_of(its))

    def shown(self, trial):
        """(rank, path) -> what is there; a path is a text."""
        results = written(trial) if self.in_place else trial.returned
        return {
            (rank, path): leaf for rank, each in enumerate(results) for path, leaf in leaves(each, self.names).items()
        }

    def alike(self, mine, other, right):
        if mine.keys() != other.keys() or mine.keys() != right.keys():
            return 0
        if all(close(mine[place], other[place]) for place in mine):
            return 2
        if self.whole:
            return 0
        first = unequal(mine, right)[0]
        word = isinstance(mine[first], str)  # one of a few: many mistakes lead to it
        return int(not word and close(mine[first], other[first]))

    def elsewhere(self, exercise, trial, mistake):
        """Without ranks all cases are looked at: one number, and one word, are soon the same by chance."""
        return self.shares(exercise, trial, mistake)[1] if isinstance(trial.case, Alone) else 1

    def shares(self, exercise, trial, mistake):
        """In which part of the cases where the answer is wrong they are alike; and of those where one of them is."""
        wrong, either = [], []
        for case in exercise.cases:
            runs = there(trial, case), exercise.run(case, mistake), exercise.right(case)
            mine, other, its = map(self.seen, runs)
            if not same(mine, its):
                wrong.append(same(mine, other))
            if not same(mine, its) or not same(other, its):
                either.append(same(mine, other))
        return [sum(agree) / len(agree) if agree else 1 for agree in (wrong, either)]

    def telling(self, seen):
        return any(isinstance(each, float | torch.Tensor) for each in seen.values())

    def mistaken(self, exercise, trial, right, earlier=()):
        silent = not any(map(any, trial.run.traffic)) and any(map(any, right.run.traffic))
        return {} if silent and self.general(trial, right) else super().mistaken(exercise, trial, right, earlier)

    def general(self, trial, right):
        mine, its = self.seen(trial), self.seen(right)
        if mine.keys() != its.keys():
            return ""
        wrong = unequal(mine, its)
        tensors = all(isinstance(each, torch.Tensor) for each in (*mine.values(), *its.values()))
        if not wrong or not tensors:
            return ""
        path = wrong[0][1]
        judged = sorted(rank for rank, each in its if each == path)
        got, want = ([each[rank, path] for rank in judged] for each in (mine, its))
        if judged != list(range(trial.case.ranks)) or any(a.shape != b.shape for a, b in zip(got, want)):
            return left_open(trial) or ""  # what it looks like on all ranks cannot be said
        rank = min(rank for rank, each in wrong if each == path)
        if slightly_off(got[rank], want[rank]):
            return ""

        def pick(trial):
            return [self.seen(trial).get((rank, path)) for rank in range(trial.case.ranks)]

        given = [trial.case.arguments(rank) for rank in range(trial.case.ranks)]
        own = pick(SimpleNamespace(case=trial.case, error=None, arguments=given, returned=list(map(tensors_of, given))))
        looks = (look(trial, got, want, own, pick) for look in (left_open, whose, *self.explain, times, misplaced))
        return next(filter(None, looks), "")

    def known(self, exercise, trial, right):
        mine, its = self.seen(trial), self.seen(right) or {}
        for words, way in self.ways.items():
            runs = ((there(trial, case), case.arguments(0)) for case in exercise.cases)
            with suppress(ArithmeticError, LookupError, ValueError):
                if all(not run.error and same(leaves(run.returned[0]), leaves(way(*given))) for run, given in runs):
                    return words
        if isinstance(trial.case, Alone):
            numbers = [path for rank, path in unequal(mine, its) if finite(its[rank, path])]
            reason = Worlds(exercise, trial, numbers[0] if numbers else None, self.names).reason()
            if reason:
                return reason
        wrong = unequal(mine, its, trial.case.rtol)
        got, want = ([each[place] for place in its if wrong and place[1] == wrong[0][1]] for each in (mine, its))
        if not self.tell or not wrong or any(type(each) not in (float, torch.Tensor) for each in (*got, *want)):
            return ""
        return unlike(got, want) or ratio(got, want, trial.case.ranks)


def there(trial, case):
    """The same program in another case."""
    if case is trial.case:
        return trial
    if case not in trial.elsewhere:
        trial.elsewhere[case] = Trial(trial.program, case)
    return trial.elsewhere[case]


class Part(Values):
    """Of what came back, only that in whose name ``key`` is."""

    def __init__(self, name, key, holds, **how):
        super().__init__(holds, **how)
        self.name, self.key = name, key

    def seen(self, trial):
        found = super().seen(trial)
        return found and {place: each for place, each in found.items() if self.key in place[1]}


def things(names, mine, its):
    """(name, what is there, what is right), where a tuple has as many things as it should."""
    return zip(names, mine, its) if kind_of(mine) == kind_of(its) == f"{len(names)} things" else ()
