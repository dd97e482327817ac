"""Checks of values: what an answer returns or writes into its arguments, compared with the reference.

Floating-point sums may be taken in a different order, so results may differ by rounding.
"""

import inspect
from contextlib import suppress
from difflib import get_close_matches
from types import SimpleNamespace

import torch

from .cases import Alone
from .dependence import Worlds, finite
from .differences import close, described, difference, likely, same, same_form, slightly_off, unequal, untouched
from .errors import Wrong
from .exercise import mistake
from .leaves import in_place, kind, leaves, misfit, shares_memory, tensors_of
from .messages import left_open, nobody
from .target import Malformed, Target

SMALL = 99  # up to here whole numbers are soon the same by chance


class Values(Target):
    """``names``: of the things that a tuple holds. ``scratch``: the answer may overwrite its arguments.
    ``explain``: functions that look at a whole wrong result, and give the reason if they know it (differences.py).
    ``tell``: are right numbers told? Not those that the task is to predict. ``whole``: a mistake is told only if it
    gives the same in all places, where one small number is soon the same by chance. ``ways``: words -> what somebody
    may compute instead, of a case's arguments: told if it is the same in all cases. ``variants``: other edits of the
    solution, each (words, old text, new text, ...), told as mistakes are.

    Without ranks, and where there are variants, a mistake that gives the same by chance is not told: numbers agree in
    most of the cases where the answer is wrong, words and small numbers also in all where only the mistake is."""

    name, decides = "values", True

    def __init__(self, holds, names=(), scratch=False, explain=(), tell=True, whole=False, ways=(), variants=()):
        super().__init__(holds)
        self.ways, self.variants = dict(ways), [mistake(*each) for each in variants]
        self.names, self.scratch, self.explain, self.tell, self.whole = names, scratch, explain, tell, whole
        self.in_place = None  # does the reference write into its arguments? It is known when it has run

    def judge(self, exercise, trial, right):
        self.in_place = in_place(right)
        for rank, (mine, its) in enumerate(zip(trial.returned, right.returned)):
            self.form(trial, rank, mine, its)
        mine, its = self.seen(trial), self.seen(right)
        for (rank, path), want in its.items():
            same_form(trial.where(rank, path), mine[rank, path], want)
        wrong = unequal(mine, its, trial.case.rtol)
        if wrong:
            told = difference(trial, wrong[0], mine[wrong[0]], its[wrong[0]])
            raise Wrong(told if self.tell else told.partition(", where ")[0] + ", and that is not right")
        if not self.scratch and not self.in_place:
            untouched(trial, list(inspect.signature(exercise.reference).parameters), right)

    def form(self, trial, rank, mine, its):
        who = trial.who(rank)
        if inspect.isgenerator(mine) or inspect.iscoroutine(mine):
            raise Malformed(f"{who} returned {kind(mine)}: calling a generator or async function does not run its body")
        if its is None:
            given = [each for each in trial.arguments[rank] if isinstance(each, torch.Tensor)]
            if isinstance(mine, torch.Tensor) and not any(mine is t or shares_memory(mine, t) for t in given):
                raise Malformed(
                    f"{who} returns a new tensor, but the task is to work in place: the result must be in the tensor "
                    "itself, for example with tensor.copy_(result) or by writing into its parts"
                )
        elif found := misfit(mine, its, self.names):
            path, there, right = found
            named = f": {', '.join(self.names)}" if self.names and right is its else ""
            raise Malformed(
                f"{who} returned {f'{path} as ' * bool(path)}{kind(there)}, where {kind(right)} is right{named}"
            )

    def shown(self, trial):
        """(rank, path) -> what is there; a path is a text."""
        results = map(tensors_of, trial.arguments) if self.in_place else trial.returned
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

    def trust(self, exercise, trial, mistake, how, earlier):
        held, _ = trust = super().trust(exercise, trial, mistake, how, earlier)
        if how < 2 or not (self.variants or isinstance(trial.case, Alone)):
            return trust
        wrong, either, _ = shares = self.shares(exercise, trial, mistake)
        likeness = *shares, held == how
        if either == 1 or wrong > least(self.seen(trial)):
            return 2, likeness
        return int(min(wrong, either) > 1 / 2), likeness

    def shares(self, exercise, trial, mistake):
        """In which part of the cases where the answer is wrong they are alike; of those where one of them is; and in
        how many places of all that came back."""
        wrong, either, places = [], [], 0
        for case in exercise.cases:
            mine, other, its = map(self.seen, (trial.there(case), exercise.run(case, mistake), exercise.right(case)))
            agree = same(mine, other)
            wrong += [agree] * (not same(mine, its))
            either += [agree] * (not (same(mine, its) and same(other, its)))
            places += sum(at in other and close(each, other[at]) for at, each in mine.items()) if mine and other else 0
        return (*(sum(agree) / len(agree) if agree else 1 for agree in (wrong, either)), places)

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
        if not wrong or any(not isinstance(each, torch.Tensor) for each in (*mine.values(), *its.values())):
            return ""
        path = wrong[0][1]
        judged = sorted(rank for rank, each in its if each == path)
        got, want = ([each[rank, path] for rank in judged] for each in (mine, its))
        if judged != list(range(trial.case.ranks)) or any(a.shape != b.shape for a, b in zip(got, want)):
            return left_open(trial) or ""  # what it looks like on all ranks cannot be said

        def pick(trial):
            return [self.seen(trial).get((rank, path)) for rank in range(trial.case.ranks)]

        given = [trial.case.arguments(rank) for rank in range(trial.case.ranks)]
        own = pick(SimpleNamespace(case=trial.case, error=None, arguments=given, returned=list(map(tensors_of, given))))
        reason = left_open(trial) or likely(self.explain, trial, got, want, own, pick)
        return reason or (any(map(any, right.run.traffic)) and nobody(map(sum, trial.run.traffic))) or ""

    def known(self, exercise, trial, right, perhaps):
        mine, its = self.seen(trial), self.seen(right) or {}
        for words, way in self.ways.items():
            runs = ((trial.there(case), case.arguments(0)) for case in exercise.cases)
            with suppress(ArithmeticError, LookupError, ValueError):
                if all(not run.error and same(leaves(run.returned[0]), leaves(way(*given))) for run, given in runs):
                    return words
        if isinstance(trial.case, Alone):
            numbers = [path for rank, path in unequal(mine, its) if finite(its[rank, path])]
            if reason := Worlds(exercise, trial, numbers[0] if numbers else None, self.names).reason():
                return reason
        wrong = unequal(mine, its, trial.case.rtol)

        def pick(trial):
            return [each for (_, path), each in self.seen(trial).items() if path == wrong[0][1]]

        got, want = (pick(each) for each in (trial, right)) if wrong and self.tell else ((), ())
        numbers = got and all(type(each) in (float, torch.Tensor) for each in (*got, *want))
        if numbers and isinstance(got[0], torch.Tensor) and slightly_off(got[0], want[0]):
            return perhaps  # there is a guess
        return (described(trial, got, want, pick) if numbers else "") or perhaps or self.likest_right(exercise, trial)

    def likest_right(self, exercise, trial):
        """Without ranks: beside the case of that name."""
        cases = exercise.cases if isinstance(trial.case, Alone) else ()
        right = [str(case) for case in cases if same(self.seen(trial.there(case)), self.seen(exercise.right(case)))]
        return "".join(
            f"It is right with {name}: what is other here?" for name in get_close_matches(str(trial.case), right, 1, 0)
        )


def least(mine):
    """The part of the wrong cases above which two results are hardly alike by chance."""
    if len(mine) > 4 or any(isinstance(each, torch.Tensor) for each in mine.values()):
        return 0
    return 1 / 2 if any(type(each) is float or (type(each) is int and each > SMALL) for each in mine.values()) else 1


class Part(Values):
    """Of what came back, only that in whose name ``key`` is."""

    def __init__(self, name, key, holds, **how):
        super().__init__(holds, **how)
        self.name, self.key = name, key

    def seen(self, trial):
        found = super().seen(trial)
        return found and {place: each for place, each in found.items() if self.key in place[1]}
