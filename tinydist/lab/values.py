"""The first axis: the values. Floating point sums may differ in their order, and so in their last digits.

``in_place(trial)`` and ``returned(trial)`` compare what each rank has with ``case.expected``. Each of ``explain``
looks at a whole wrong result, and gives the reason if it knows it: ``explain(trial, got, expected, pick) -> text``.
"""

import inspect

import torch

from .errors import Wrong

SLIGHTLY = 1.0  # percent: bfloat16 rounds by 0.4 at most


def in_place(trial, explain=()):
    """The answer writes into its first argument."""
    for rank, value in enumerate(trial.returned):
        tensor = trial.arguments[rank][0]
        if inspect.isgenerator(value) or inspect.iscoroutine(value):
            raise Wrong(
                f"rank {rank} returned {kind(value)}: with `yield` or `async` a call runs nothing of a function"
            )
        if isinstance(value, torch.Tensor) and value is not tensor and not shares_memory(value, tensor):
            raise Wrong(
                f"rank {rank} returns a new tensor, but the task is to work in place: the result must be in `tensor` "
                f"itself, for example with tensor.copy_(result) or by writing into its parts"
            )
    compare(trial, written, explain)


def returned(trial, explain=()):
    """The answer returns its result."""
    for rank, value in enumerate(trial.returned):
        if not isinstance(value, torch.Tensor):
            raise Wrong(f"rank {rank} returned {kind(value)}, where it should return a tensor")
    compare(trial, given_back, explain)


def written(trial):
    return [arguments[0] for arguments in trial.arguments]


def given_back(trial):
    return list(trial.returned)


def compare(trial, pick, explain):
    got, expected = pick(trial), trial.case.expected
    for rank, (mine, right) in enumerate(zip(got, expected, strict=True)):
        same_form(rank, mine, right)
    wrong = [rank for rank, (mine, right) in enumerate(zip(got, expected)) if not close(mine, right)]
    if wrong:
        reasons = (look(trial, got, expected, pick) for look in explain)
        where = first_difference(wrong[0], got, expected)
        if slightly_off(got[wrong[0]], expected[wrong[0]]):
            raise Wrong(where)
        raise Wrong(next(filter(None, reasons), None) or where)


def same_form(rank, mine, right):
    for what in ("shape", "dtype"):
        have, want = (str(getattr(each, what)).removeprefix("torch.") for each in (mine, right))
        if have != want:
            have, want = (each.replace("Size(", "").rstrip(")") for each in (have, want))
            raise Wrong(f"on rank {rank} the result has {what} {have}, where {want} is right")


def first_difference(rank, got, expected):
    mine, right = got[rank].flatten(), expected[rank].flatten()
    place = next(i for i in range(len(mine)) if not close(mine[i], right[i]))
    count = sum(not close(a, b) for a, b in zip(mine, right))
    numbers = f"{count} of {len(mine)} numbers {'is' if count == 1 else 'are'} wrong"
    values = f"{mine[place].item():.6g}, where {right[place].item():.6g} is right"
    off = slightly_off(mine, right)
    smaller = f". They are off by about {off:.1g} %: are they sent, or added, in a smaller dtype?" if off else ""
    return f"on rank {rank}, {numbers}. The first is at position {place}: {values}{smaller}"


def slightly_off(mine, right):
    """In percent, if many numbers are wrong, and all by a little only, as numbers of 16 bits would be."""
    mine, right = mine.double(), right.double()
    off = 100 * float((mine - right).norm() / right.norm())
    many = (~torch.isclose(mine, right, rtol=1e-4, atol=1e-5)).sum() >= mine.numel() / 4
    return off if many and off < SLIGHTLY else None


def close(a, b):
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5)


def shares_memory(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != 0


def kind(value):
    return "nothing (None)" if value is None else f"an object of type {type(value).__name__}"
