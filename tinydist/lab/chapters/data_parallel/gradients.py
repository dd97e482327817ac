"""Gradients on every rank, compared with the right ones; a wrong one is told by what it equals.

A suspect is a mistake and what it leads to: words -> by rank, the gradients that a rank would then have.
"""

import torch

from ....simulator.matching import ranks_in_words
from ...errors import Wrong
from ...values import close


def right_everywhere(got, right, suspects, what=".grad"):
    """``got``: by rank, name -> gradient. ``right``: name -> gradient, the same for all."""
    for rank, mine in enumerate(got):
        complete(rank, mine, right)
    wrong = [rank for rank, mine in enumerate(got) if not alike(mine, right)]
    if wrong:
        found = (words for words, theirs in suspects.items() if all(alike(got[r], theirs[r]) for r in wrong))
        rank, mine = wrong[0], got[wrong[0]]
        why = next(found, None) or misplaced(mine, right) or first_difference(rank, mine, right, what)
        raise Wrong(who(wrong, len(got)) + why)


def complete(rank, mine, right):
    for name, gradient in mine.items():
        if gradient is None:
            raise Wrong(f"on rank {rank} {name}.grad is None: it has no gradient, and needs the one of all ranks")
        if gradient.shape != right[name].shape:
            have, want = list(gradient.shape), list(right[name].shape)
            raise Wrong(f"on rank {rank} {name}.grad has shape {have}, where {want} is right")


def alike(mine, theirs):
    return all(close(mine[name], theirs[name]) for name in theirs)


def who(wrong, ranks):
    if len(wrong) == ranks:
        return ""
    be = "is" if len(wrong) == 1 else "are"
    return f"{ranks_in_words(wrong)} {be} wrong, the others right; but all take the step, and all need the mean: "


def misplaced(mine, right):
    """The right numbers, in other places."""
    have, want = (torch.cat([each[name].flatten() for name in right]).sort().values for each in (mine, right))
    if close(have, want):
        name = next(name for name in right if not close(mine[name], right[name]))
        return (
            f"the numbers are right, but in wrong places, as in {name}: cut them up in the order in which they were "
            "put together"
        )
    return None


def first_difference(rank, mine, right, what):
    name = next(name for name in right if not close(mine[name], right[name]))
    have, want = mine[name].flatten(), right[name].flatten()
    place = next(i for i in range(len(have)) if not close(have[i], want[i]))
    return (
        f"on rank {rank} {name}{what} is {have[place].item():.6g} at position {place}, where {want[place].item():.6g} "
        f"is right"
    )


def combined(gradients, weights):
    """The weighted sum of several models' gradients, name by name."""
    return {name: sum(each[name] * w for each, w in zip(gradients, weights, strict=True)) for name in gradients[0]}


def times(gradients, factor):
    return combined([gradients], [factor])
