"""The values: what an answer returned, or wrote into its arguments, compared number by number with the reference's.

Floating point sums may differ in their order, and so in their last digits.
"""

import inspect
from dataclasses import is_dataclass

import torch

from .errors import Wrong
from .messages import SHARED, left_open
from .target import Malformed, Target
from .values import kind, shares_memory, slightly_off

PLAIN = (torch.Tensor, torch.nn.Parameter)
ATOL = 1e-5


class Values(Target):
    """``names``: of the things that a tuple holds. ``scratch``: the answer may overwrite its arguments.
    ``explain``: functions that look at a whole wrong result, and give the reason if they know it (sums.py).
    ``tell``: are right numbers told? Not those that the task is to predict."""

    name, decides = "values", True

    def __init__(self, holds, names=(), scratch=False, explain=(), tell=True):
        super().__init__(holds)
        self.names, self.scratch, self.explain, self.tell = names, scratch, explain, tell
        self.in_place = None  # does the reference write into its arguments? It is known when it has run

    def judge(self, exercise, trial, right):
        self.in_place = in_place(right)
        for rank, (mine, its) in enumerate(zip(trial.returned, right.returned)):
            self.form(trial, rank, mine, its)
        mine, its = self.seen(trial), self.seen(right)
        for (rank, path), want in its.items():
            same_form(words_of(trial, rank, path), mine[rank, path], want)
        wrong = [place for place in its if not close(mine[place], its[place], trial.case.rtol)]
        if wrong:
            told = difference(trial, wrong[0], mine[wrong[0]], its[wrong[0]])
            raise Wrong(told if self.tell else told.partition(", where ")[0] + ", and that is not right")
        if not self.scratch and not self.in_place:
            untouched(trial, list(inspect.signature(exercise.reference).parameters), right)

    def form(self, trial, rank, mine, its):
        on = "" if trial.case.ranks == 1 else f"rank {rank} returned "
        if inspect.isgenerator(mine) or inspect.iscoroutine(mine):
            raise Malformed(
                f"{on or 'it returned '}{kind(mine)}: with `yield` or `async` a call runs nothing of a function"
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
            raise Malformed(f"{on or 'it returned '}{kind_of(mine)}, where {self.asked(its)}")

    def asked(self, its):
        if isinstance(its, tuple | list) and len(self.names) == len(its):
            return f"{len(its)} {'tensors' if isinstance(its[0], torch.Tensor) else 'things'} are right: " + ", ".join(
                self.names
            )
        return "it should return " + ("a tensor" if isinstance(its, torch.Tensor) else shape_of(its))

    def seen(self, trial):
        """(rank, path) -> what is there; a path is a text."""
        if trial.error is not None:
            return None
        results = written(trial) if self.in_place else trial.returned
        return {
            (rank, path): leaf for rank, each in enumerate(results) for path, leaf in leaves(each, self.names).items()
        }

    def alike(self, mine, other, right):
        if mine.keys() != other.keys() or mine.keys() != right.keys():
            return 0
        if all(close(mine[place], other[place]) for place in mine):
            return 2
        first = next(place for place in right if not close(mine[place], right[place]))
        word = isinstance(mine[first], str)  # one of a few: many mistakes lead to it
        return int(not word and close(mine[first], other[first]))

    def mistaken(self, exercise, trial, right):
        silent = not any(map(any, trial.run.traffic)) and any(map(any, right.run.traffic))
        return {} if silent and self.general(trial, right) else super().mistaken(exercise, trial, right)

    def general(self, trial, right):
        mine, its = self.seen(trial), self.seen(right)
        if mine.keys() != its.keys():
            return ""
        wrong = {place for place in its if not close(mine[place], its[place])}
        tensors = all(isinstance(each, torch.Tensor) for each in (*mine.values(), *its.values()))
        if not wrong or not tensors:
            return ""
        path = min(wrong)[1]
        got, want = ([each[rank, path] for rank in range(trial.case.ranks)] for each in (mine, its))
        if any(a.shape != b.shape for a, b in zip(got, want)):
            return ""
        rank = min(rank for rank, each in wrong if each == path)
        if slightly_off(got[rank], want[rank]):
            return ""

        def pick(trial):
            return [self.seen(trial)[rank, path] for rank in range(trial.case.ranks)]

        looks = (look(trial, got, want, pick) for look in (left_open, whose, *self.explain, times, misplaced))
        return next(filter(None, looks), "")


# What is in a result.


def leaves(thing, names=(), path=""):
    """path -> what is there, of lists, dicts and dataclasses in one another."""
    if is_dataclass(thing):
        thing = vars(thing)
    if isinstance(thing, dict):
        pairs = [(f"{key} of {path}" if path else str(key), each) for key, each in thing.items()]
    elif isinstance(thing, list | tuple):
        named = names if len(names) == len(thing) else [f"{path}[{i}]" for i in range(len(thing))]
        pairs = list(zip(named, thing))
    else:
        return {path: thing}
    return {place: leaf for at, each in pairs for place, leaf in leaves(each, (), at).items()}


def nbytes(thing):
    """Of the tensors in it."""
    return sum(each.nbytes for each in leaves(thing).values() if isinstance(each, torch.Tensor))


def in_place(trial):
    return all(each is None or (isinstance(each, torch.Tensor) and own(trial, each)) for each in trial.returned)


def own(trial, tensor):
    return any(tensor is each for arguments in trial.arguments for each in arguments)


def written(trial):
    return [tensors_of(arguments) for arguments in trial.arguments]


def tensors_of(arguments):
    found = [each for each in arguments if isinstance(each, torch.Tensor)]
    return found[0] if len(found) == 1 else found


def kind_of(thing):
    return shape_of(thing) if isinstance(thing, dict | tuple | list) else kind(thing)


def shape_of(thing):
    if isinstance(thing, dict):
        return f"a dict: {', '.join(map(repr, thing))}"
    if isinstance(thing, tuple | list):
        return f"{len(thing)} things"
    return "a number" if isinstance(thing, int | float) else kind(thing)


# How it differs.


def words_of(trial, rank, path):
    return f"{on(trial, rank)}{path or 'the result'}"


def on(trial, rank):
    return "" if trial.case.ranks == 1 else f"on rank {rank} "


def same_form(what, mine, its):
    if isinstance(its, torch.Tensor):
        if type(mine) not in PLAIN:
            raise Malformed(f"{what} is {kind(mine)}, where a tensor of shape {list(its.shape)} is right")
        for name in ("shape", "dtype"):
            have, want = (str(getattr(each, name)).removeprefix("torch.") for each in (mine, its))
            if have != want:
                have, want = (each.replace("Size(", "").rstrip(")") for each in (have, want))
                raise Malformed(f"{what} has {name} {have}, where {want} is right")
    elif type(its) in (int, float):
        if type(mine) not in (int, float):
            raise Malformed(f"{what} is {kind(mine)}, where a number is right")
    elif type(mine) is not type(its):
        raise Malformed(f"{what} is {kind(mine)}, where {kind(its)} is right")


def close(a, b, rtol=1e-4):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = a.shape == b.shape
        return same and torch.allclose(a.double(), b.double(), rtol=rtol, atol=ATOL, equal_nan=True)
    if type(a) in (int, float) and type(b) in (int, float):
        return a == b or (a != a and b != b) or abs(a - b) <= 1e-9 * abs(b)
    return type(a) is type(b) and a == b


def difference(trial, place, mine, its):
    rank, path = place
    if isinstance(its, torch.Tensor) and not its.dim():
        mine, its = mine.item(), its.item()
    if not isinstance(its, torch.Tensor):
        return f"{words_of(trial, rank, path)} is {shown(mine)}, where {shown(its)} is right"
    wrong = ~torch.isclose(mine.double(), its.double(), rtol=trial.case.rtol, atol=ATOL, equal_nan=True)
    at = wrong.nonzero()[0].tolist()
    count, index = int(wrong.sum()), tuple(at)
    of = f" of {path}" if path else ""
    who = "" if trial.case.ranks == 1 else f"on rank {rank}, "
    numbers = f"{who}{count} of {mine.numel()} numbers{of} {'is' if count == 1 else 'are'} wrong"
    off = slightly_off(mine.flatten(), its.flatten())
    done = "sent, or added," if trial.case.ranks > 1 else "computed"
    smaller = f". They are off by about {off:.1g} %: are they {done} in a smaller dtype?" if off else ""
    return (
        f"{numbers}. The first is at position {', '.join(map(str, at))}: {shown(mine[index].item())}, where "
        f"{shown(its[index].item())} is right{smaller}"
    )


def shown(number):
    return f"{number:.6g}" if isinstance(number, float) else repr(number)


def untouched(trial, names, right):
    """What the reference leaves as it was, the answer does. ``names``: of the arguments."""
    first = map(trial.case.arguments, range(trial.case.ranks))
    for rank, each in enumerate(zip(first, trial.arguments, right.arguments)):
        before, mine, its = (leaves(arguments, names) for arguments in each)
        for path, old in before.items():
            if isinstance(old, torch.Tensor) and close(old, its.get(path)) and not close(old, mine.get(path)):
                raise Malformed(
                    f"{words_of(trial, rank, path)} has changed: it belongs to the caller, who may need it again. Make "
                    "new tensors, without *=, /=, += and out="
                )


# What it looks like.


def whose(trial, got, want, pick):
    """Another rank's numbers, where only one's were right."""
    inputs = [tensors_of(trial.case.arguments(rank)) for rank in range(trial.case.ranks)]
    if trial.case.ranks == 1 or any(not isinstance(each, torch.Tensor) for each in inputs):
        return None
    if any(mine.shape != each.shape for mine, each in zip(got, inputs)):
        return None
    wrong = [rank for rank in range(trial.case.ranks) if not close(got[rank], want[rank])]
    rights = [rank for rank, each in enumerate(inputs) if close(each, want[wrong[0]])]
    if not rights:
        return None
    for rank in wrong:
        owners = [other for other, each in enumerate(inputs) if other != rank and close(got[rank], each)]
        if owners:
            return f"rank {rank} has the numbers of rank {owners[0]}, where those of rank {rights[0]} are right"
    if close(got[wrong[0]], inputs[wrong[0]]):
        return f"rank {wrong[0]} still has its own numbers: nothing has reached it from rank {rights[0]}"
    return None


def times(trial, got, want, pick):
    p = trial.case.ranks
    if p > 1 and all(close(mine * p, right) for mine, right in zip(got, want)):
        return f"the result is {p} times too small, the number of ranks: is it divided once too often?"
    if p > 1 and all(close(mine, right * p) for mine, right in zip(got, want)):
        return f"the result is {p} times too large, the number of ranks: is this a sum, where a mean is right?"
    if p > 1 and not any(map(any, trial.run.traffic)):
        return f"nobody sent anything. {SHARED}"
    return None


def misplaced(trial, got, want, pick):
    if all(close(mine.flatten().sort().values, right.flatten().sort().values) for mine, right in zip(got, want)):
        return "the numbers are right, but in wrong places"
    return None
