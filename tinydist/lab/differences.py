"""Describes how a result differs from the expected one: first mismatch, magnitude, likely cause."""

from fractions import Fraction

import torch

from ..rules import ranks_in_words
from .leaves import kind, leaves
from .messages import messages
from .target import GUESS, Malformed

PLAIN = (torch.Tensor, torch.nn.Parameter)
ATOL = 1e-5
NOT_ADDED = "the last hop is missing, or what arrived was not added (or added before wait)"
MOVED = -1  # in place of a count: a number of that rank, from another position
SLIGHTLY = 1.0  # percent: bfloat16 rounds by 0.4 at most


def same_form(what, mine, its):
    if not isinstance(its, torch.Tensor):
        if kind(mine) != kind(its):
            raise Malformed(f"{what} is {kind(mine)}, where {kind(its)} is right")
    elif type(mine) not in PLAIN:
        raise Malformed(f"{what} is {kind(mine)}, where a tensor of shape {list(its.shape)} is right")
    else:
        for name, *both in (("shape", list(mine.shape), list(its.shape)), ("dtype", mine.dtype, its.dtype)):
            have, want = (str(each).removeprefix("torch.") for each in both)
            if have != want:
                raise Malformed(f"{what} has {name} {have}, where {want} is right")


def close(a, b, rtol=1e-4):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = a.shape == b.shape
        return same and torch.allclose(a.double(), b.double(), rtol=rtol, atol=ATOL, equal_nan=True)
    if type(a) in (int, float) and type(b) in (int, float):
        return a == b or (a != a and b != b) or abs(a - b) <= 1e-9 * abs(b)
    return type(a) is type(b) and a == b


def same(mine, its):
    """All that came back, by place; None: an error."""
    if mine is None or its is None:
        return mine is its
    return mine.keys() == its.keys() and not unequal(mine, its)


def unequal(mine, its, rtol=1e-4):
    """The places, or ranks, where they are not close."""
    return [at for at in (its if isinstance(its, dict) else range(len(its))) if not close(mine[at], its[at], rtol)]


def slightly_off(mine, right):
    """In percent, if many numbers are wrong, and all by a little only, as numbers of 16 bits would be."""
    mine, right = mine.double(), right.double()
    off = 100 * float((mine - right).norm() / right.norm())
    many = (~torch.isclose(mine, right, rtol=1e-4, atol=ATOL)).sum() >= mine.numel() / 4
    return off if many and off < SLIGHTLY else None


def difference(trial, place, mine, its):
    rank, path = place
    if isinstance(its, torch.Tensor) and not its.dim():
        mine, its = mine.item(), its.item()
    if not isinstance(its, torch.Tensor):
        return f"{trial.where(rank, path)} is {', where '.join(apart(mine, its))} is right"
    wrong = ~torch.isclose(mine.double(), its.double(), rtol=trial.case.rtol, atol=ATOL, equal_nan=True)
    at = wrong.nonzero()[0].tolist()
    count, index = int(wrong.sum()), tuple(at)
    of = f" of {path}" if path else ""
    who = "" if trial.case.ranks == 1 else f"on rank {rank}, "
    numbers = f"{who}{count} of {mine.numel()} numbers{of} {'is' if count == 1 else 'are'} wrong"
    off = slightly_off(mine.flatten(), its.flatten())
    done = "sent, or added," if trial.case.ranks > 1 else "computed"
    smaller = f"{GUESS} {off:.1g} %: are they {done} in a smaller dtype?" if off else ""
    first = ", where ".join(apart(mine[index].item(), its[index].item()))
    return f"{numbers}. The first is at position {', '.join(map(str, at))}: {first} is right{smaller}"


def apart(mine, its):
    """Never two numbers that look the same."""
    short = shown(mine), shown(its)
    return short if short[0] != short[1] else (repr(mine), repr(its))


def shown(number):
    return f"{number:.6g}" if isinstance(number, float) else repr(number)


def untouched(trial, names, right):
    """What the reference leaves as it was, the answer does. ``names``: of the arguments."""
    first = map(trial.case.arguments, range(trial.case.ranks))
    for rank, each in enumerate(zip(first, trial.arguments, right.arguments)):
        before, mine, its = (leaves(arguments, names) for arguments in each)
        for path, old in before.items():
            if close(old, its.get(path)) and not close(old, mine.get(path)):
                new = "new tensors, without *=, /=, += and out=" if isinstance(old, torch.Tensor) else "a copy of it"
                raise Malformed(
                    f"{trial.where(rank, path)} has changed: it belongs to the caller, who may need it again. Make "
                    f"{new}"
                )


# What it looks like, on all ranks: ``own``, what stood there before, or was given; ``pick``, the same of another trial.


def likely(explain, trial, got, want, own, pick):
    """The first reason that is found; "" for numbers that are off by a little, as of fewer bits."""
    rank = unequal(got, want)[0]
    looks = () if slightly_off(got[rank], want[rank]) else (whose, *explain, times, misplaced)
    return next(filter(None, (look(trial, got, want, own, pick) for look in looks)), "")


def whose(trial, got, want, own, pick):
    """Another rank's numbers, where only one's were right."""
    wrong = unequal(got, want)
    rights = [rank for rank, each in enumerate(own) if close(each, want[wrong[0]])]
    if not rights or trial.case.ranks == 1:
        return None
    for rank in wrong:
        owners = [other for other, each in enumerate(own) if other != rank and close(got[rank], each)]
        if owners:
            return f"rank {rank} has the numbers of rank {owners[0]}, where those of rank {rights[0]} are right"
    if close(got[wrong[0]], own[wrong[0]]):
        return f"rank {wrong[0]} still has its own numbers: nothing has reached it from rank {rights[0]}"
    return None


def times(trial, got, want, own, pick):
    p = trial.case.ranks
    if p == 1:
        return None
    divided, added = "divided where it should not be, or twice?", f"not divided, or added {p} times?"
    for power, how, why in ((1, "small", divided), (-1, "large", added)):
        if as_large(got, want, p**power) and goes_with_ranks(trial, pick, power):
            return f"the result is {p} times too {how}, and there are as many ranks: {why}"
    if all(each is not None and each.shape == got[0].shape for each in own):
        row = torch.stack([each.double() for each in own])
        for word, each in (("largest", row.amax(0)), ("smallest", row.amin(0))):
            if not close(each, want[0].double()) and all(close(mine.double(), each) for mine in got):
                return f"it is the {word} of what the ranks have, number by number"
    return None


def as_large(got, want, factor):
    return all(close(mine * factor, right) for mine, right in zip(got, want))


def goes_with_ranks(trial, pick, power):
    """Is it so with another number of ranks, too?"""
    for case in trial.exercise.cases if trial.exercise else ():
        if case.ranks not in (1, trial.case.ranks) and not trial.there(case).error:
            return as_large(pick(trial.there(case)), pick(trial.exercise.right(case)), case.ranks**power)
    return True


def misplaced(trial, got, want, own, pick):
    """Numbers that belong elsewhere; not such as are there twice."""
    if not want[0].dim():
        return None
    rank = unequal(got, want)[0]
    wrong = ~torch.isclose(got[rank].double(), want[rank].double(), rtol=1e-4, atol=ATOL)
    row = torch.cat([each.flatten() for each in want]).double()
    same = torch.isclose(got[rank][wrong].double()[: 10**7 // len(row), None], row, rtol=1e-6, atol=0)
    if not len(row.unique()) > 2 or not same.any(1).all():
        return None
    at, place = int(same[0].nonzero()[0]), ", ".join(map(str, wrong.nonzero()[0].tolist()))
    owner = next(other for other in range(len(want)) if at < sum(each.numel() for each in want[: other + 1]))
    at -= sum(each.numel() for each in want[:owner])
    there = ", ".join(str(int(each)) for each in torch.unravel_index(torch.tensor(at), want[owner].shape))
    whose = "" if trial.case.ranks == 1 or owner == rank else f" of rank {owner}'s"
    return f"the numbers are right, but in wrong places: at position {place} stands that of position {there}{whose}"


def as_many(counts):
    """``counts(trial)``: (count, what there are so many of). It is as many times too large, or too small."""

    def look(trial, got, want, own, pick):
        for count, what in counts(trial):
            for times, how in ((count, "large"), (1 / count, "small")):
                if count != 1 and as_large(got, want, 1 / times):
                    return f"It is {simple(count)} times too {how}, as many as there are {what}"
        return None

    return look


def weighed(trial, got, want, own, pick):
    """How much each rank's numbers count, where all are added up with weights."""
    given, p = torch.stack([each.flatten().double() for each in own], 1), trial.case.ranks
    rank = unequal(got, want)[0]
    if p == 1 or torch.linalg.matrix_rank(given) < p or len(given) == p:
        return None
    has, right = (torch.linalg.lstsq(given, each[rank].flatten().double()[:, None]).solution for each in (got, want))
    if not all(close((given @ w).flatten(), each[rank].flatten()) for w, each in ((has, got), (right, want))):
        return None
    mine, its = (", ".join(simple(round(each, 5) + 0.0) for each in w.flatten().tolist()) for w in (has, right))
    return f"on rank {rank} what ranks 0 to {p - 1} have counts {mine} times, where {its} is right"


# What can be said where no reason is found.


def described(trial, got, want, pick):
    if trial.case.ranks == 1 and torch.as_tensor(want[0]).numel() == 1:  # one number has any ratio
        return ""
    of_ranks = times(trial, got, want, [None], pick) if type(got[0]) is float else ""
    return unlike(got, want) or of_ranks or ratio(got, want)


def unlike(got, want):
    """Who has the same, where all should; or how many times as much each has."""
    if not all(close(each, want[0]) for each in want):
        return ""
    groups = []
    for rank, each in enumerate(got):
        same = next((group for group in groups if close(got[group[0]], each)), None)
        groups.append([rank]) if same is None else same.append(rank)
    if len(groups) == 1:
        return ""
    for others, what in [(want, "what is right"), (got[:1] * len(got), "what rank 0 has")]:
        many = [multiple(mine, other) for mine, other in zip(got, others)]
        if None not in many and want[0].numel() > 1:
            each = ", ".join(f"rank {rank} has {simple(times)}" for rank, times in enumerate(many) if times != 1)
            return (
                f"All ranks should have the same. In multiples of {what}, {each}: by what of its own does each rank "
                "multiply or divide?"
            )
    if len(groups) == len(got):
        return "All ranks should have the same, and each has something else"
    return f"All ranks should have the same. Only these agree with one another: {', '.join(map(str, groups))}"


def multiple(mine, its):
    """How many times as much, if all numbers have the same ratio."""
    mine, its = (torch.as_tensor(each).double().flatten() for each in (mine, its))
    if mine.shape != its.shape or not its.norm() or not (mine.isfinite() & its.isfinite()).all():
        return None
    times = float(mine @ its / (its @ its))
    return round(times, 6) if times and close(mine, times * its) else None


def simple(times):
    """1/3, or 0.123."""
    near = Fraction(times).limit_denominator(16)
    return str(near) if abs(near - times) < 1e-5 * abs(times) else f"{times:.4g}"


def ratio(got, want):
    """Of numbers that are all so many times too large, or too small, or squared."""
    mine, its = (torch.cat([torch.as_tensor(each).double().flatten() for each in them]) for them in (got, want))
    times = multiple(mine, its)
    if times == -1:
        return "All of it has the wrong sign"
    near = times and Fraction(abs(times)).limit_denominator(9)
    if times is None or (len(its.unique()) == 1 and abs(near - abs(times)) > 1e-5):  # one number has any ratio
        return "It is the square of what is right" if mine.shape == its.shape and close(mine, its.square()) else ""
    many, how = (times, "large") if times > 1 else (1 / times, "small")
    return f"All of it is {simple(many)} times too {how}" if many > 1 and simple(many) != "1" else ""


# The same of a sum over the ranks. To find which ranks contribute to a wrong sum, it runs once per rank, with that
# rank's values and zeros elsewhere.


def unchanged(trial, got, want, own, pick):
    """Ranks that have what they had."""
    wrong = unequal(got, want)
    if not all(close(got[rank], own[rank]) for rank in wrong):
        return None
    some = f"{ranks_in_words(wrong)} still {'has its' if len(wrong) == 1 else 'have their'}"
    why = f" although messages are sent: {NOT_ADDED}" if messages(trial.run) else ""
    return f"{some if len(wrong) < len(got) else 'every rank still has its'} own numbers: nothing was added{why}"


def contributions(trial, got, want, own, pick):
    """Which ranks' numbers are missing, counted twice, or from another place, where the first number is wrong."""
    rank = unequal(got, want)[0]
    if own[rank] is None or got[rank].shape != own[rank].shape:
        return None
    wrong = ~torch.isclose(got[rank].double(), want[rank].double(), rtol=1e-4, atol=1e-5)
    place = tuple(wrong.nonzero()[0].tolist())
    counts = [count(trial, source, pick, rank, place) for source in range(len(got))]
    if None in counts or set(counts) == {1}:
        return None
    where = f"on rank {rank}, at position {', '.join(map(str, place))},"
    if sorted(counts) == [0] * (len(got) - 1) + [1]:
        return f"{where} there are only the numbers of rank {counts.index(1)}: {NOT_ADDED}"
    told = {
        0: "missing: a hop that was not made or not added",
        MOVED: "those of another position: are the parts the same on all ranks?",
        **{times: f"counted {times} times" for times in counts if times > 1},
    }
    found = [([r for r, each in enumerate(counts) if each == times], what) for times, what in told.items()]
    return f"{where} {', and '.join(f'the numbers of {ranks_in_words(who)} are {what}' for who, what in found if who)}"


def count(trial, source, pick, rank, place):
    """How often the number of ``source`` is in the result there; None: it cannot be told."""

    def arguments(other):
        first, *others = trial.case.arguments(other)
        return (first if other == source else torch.zeros_like(first), *others)

    again = trial.again(arguments=arguments)
    if again.error is not None:
        return None
    found, numbers = pick(again)[rank][place], arguments(source)[0]
    times = (found / numbers[place]).round().nan_to_num(MOVED, MOVED, MOVED)
    if times >= 0 and close(found, times * numbers[place]):
        return int(times)
    return MOVED if any(close(found, number) for number in numbers.flatten()) else None
