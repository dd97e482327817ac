"""How a result differs from the right one: where first, by how much, and what that looks like."""

import torch

from .leaves import kind, leaves
from .messages import SHARED
from .target import GUESS, Malformed

PLAIN = (torch.Tensor, torch.nn.Parameter)
ATOL = 1e-5
SLIGHTLY = 1.0  # percent: bfloat16 rounds by 0.4 at most


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
        return f"{words_of(trial, rank, path)} is {shown(mine)}, where {shown(its)} is right"
    wrong = ~torch.isclose(mine.double(), its.double(), rtol=trial.case.rtol, atol=ATOL, equal_nan=True)
    at = wrong.nonzero()[0].tolist()
    count, index = int(wrong.sum()), tuple(at)
    of = f" of {path}" if path else ""
    who = "" if trial.case.ranks == 1 else f"on rank {rank}, "
    numbers = f"{who}{count} of {mine.numel()} numbers{of} {'is' if count == 1 else 'are'} wrong"
    off = slightly_off(mine.flatten(), its.flatten())
    done = "sent, or added," if trial.case.ranks > 1 else "computed"
    smaller = f"{GUESS} {off:.1g} %: are they {done} in a smaller dtype?" if off else ""
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
            if close(old, its.get(path)) and not close(old, mine.get(path)):
                new = "new tensors, without *=, /=, += and out=" if isinstance(old, torch.Tensor) else "a copy of it"
                raise Malformed(
                    f"{words_of(trial, rank, path)} has changed: it belongs to the caller, who may need it again. Make "
                    f"{new}"
                )


# What it looks like, on all ranks: ``own``, what stood there before, or was given; ``pick``, the same of another trial.


def whose(trial, got, want, own, pick):
    """Another rank's numbers, where only one's were right."""
    wrong = [rank for rank, mine in enumerate(got) if not close(mine, want[rank])]
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
    if p > 1 and all(close(mine * p, right) for mine, right in zip(got, want)):
        return f"the result is {p} times too small, and there are as many ranks: a mean, where a sum is right?"
    if p > 1 and all(close(mine, right * p) for mine, right in zip(got, want)):
        return f"the result is {p} times too large, and there are as many ranks: a sum, where a mean is right?"
    if p > 1 and not any(map(any, trial.run.traffic)):
        return f"nobody sent anything. {SHARED}"
    return None


def misplaced(trial, got, want, own, pick):
    if all(close(mine.flatten().sort().values, right.flatten().sort().values) for mine, right in zip(got, want)):
        return "the numbers are right, but in wrong places"
    return None
