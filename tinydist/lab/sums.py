"""What went wrong with a sum over the ranks, told from the result.

Whose numbers are in a wrong one is found by running it once for each rank: that one has its numbers, all others zeros.
"""

import torch

from ..rules import ranks_in_words
from .differences import close
from .messages import messages

NOT_ADDED = "the last hop is missing, or what arrived was not added (or added before wait)"
MOVED = -1  # in place of a count: a number of that rank, from another position


def unchanged(trial, got, want, own, pick):
    """Ranks that have what they had."""
    wrong = [rank for rank, mine in enumerate(got) if not close(mine, want[rank])]
    if not all(close(got[rank], own[rank]) for rank in wrong):
        return None
    some = f"{ranks_in_words(wrong)} still {'has its' if len(wrong) == 1 else 'have their'}"
    why = f" although messages are sent: {NOT_ADDED}" if messages(trial.run) else ""
    return f"{some if len(wrong) < len(got) else 'every rank still has its'} own numbers: nothing was added{why}"


def contributions(trial, got, want, own, pick):
    """Which ranks' numbers are missing, counted twice, or from another place, where the first number is wrong."""
    rank = next(rank for rank, mine in enumerate(got) if not close(mine, want[rank]))
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
