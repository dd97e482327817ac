"""What went wrong with a sum over the ranks, told from the result.

Which ranks' numbers are in a wrong sum is found by running it once more on numbers that tell: rank r holds 64**r
everywhere, so that the digits of the result, to base 64, count how often each rank was added.

    2 + 0*64 + 1*64**2      rank 0 twice, rank 1 never, rank 2 once
"""

import torch

from ..simulator.matching import ranks_in_words
from .messages import sent_by_rank
from .values import close

BASE = 64
NOT_ADDED = "the last hop is missing, or what arrived was not added (or added before wait)"
ELSEWHERE = ", or the sum stands in another part: on which rank does each part end?"
OVERWRITTEN = ", or the second half has written over it"


def unchanged(trial, got, expected, pick):
    """Ranks that have what they had."""
    p = trial.case.ranks
    inputs = [trial.case.arguments(rank)[0] for rank in range(p)]
    wrong = [rank for rank in range(p) if not close(got[rank], expected[rank])]
    still = [
        rank for rank in wrong if close(got[rank], inputs[rank]) or close(got[rank], inputs[rank].tensor_split(p)[rank])
    ]
    if still != wrong:
        return None
    if len(still) == p:
        who = "every rank still has its"
    else:
        who = f"{ranks_in_words(still)} still {'has its' if len(still) == 1 else 'have their'}"
    sent = sent_by_rank(trial.run)[0]
    elsewhere = "" if got[0].shape == inputs[0].shape else ELSEWHERE
    why = f" although messages are sent: {NOT_ADDED}{elsewhere}" if any(sent) else ""
    return f"{who} own numbers: nothing was added{why}"


def multiple(trial, got, expected, pick):
    p = trial.case.ranks
    if all(close(mine.double() * p, right) for mine, right in zip(got, expected)):
        return f"the result is {p} times too small, the number of ranks: this is the mean, and the sum is asked for"
    if all(close(mine, right.double() * p) for mine, right in zip(got, expected)):
        return f"the result is {p} times too large, the number of ranks: something is added {p} times"
    return None


def misplaced(trial, got, expected, pick):
    """The right parts, in the wrong place."""
    p = trial.case.ranks
    all_have_all = got[0].shape == trial.case.arguments(0)[0].shape
    parts = expected[0].tensor_split(p) if all_have_all else expected
    for rank, tensor in enumerate(got):
        for place, part in enumerate(tensor.tensor_split(p)) if all_have_all else [(rank, tensor)]:
            same = [other for other in range(p) if len(part) and close(part, parts[other])]
            if same and place not in same:
                return f"on rank {rank}, what should be part {place} of the sum is part {same[0]}"
    return None


def contributions(trial, got, expected, pick):
    """Which ranks' numbers are missing, or counted twice, and where."""
    p = trial.case.ranks
    shape = trial.case.arguments(0)[0].shape
    again = trial.again(arguments=lambda rank: (torch.full(shape, float(BASE) ** rank, dtype=torch.float64),))
    if again.error is not None:
        return None
    marked = pick(again)
    whole = got[0].shape == shape and p > 1
    tally = list(tally_of(marked, p, whole))
    second_half = half_way(tally) if whole else None
    found = list(filter(None, (say(*place, whole) for place in tally)))
    if second_half or not found:
        return second_half
    more = len(found) - 1
    return found[0] + (f". So it is with {more} more part{'s' * (more > 1)} of the results" if more else "")


def tally_of(marked, p, whole):
    """(rank, part, and for each number of it how often each rank's is in it), of the parts that are not empty."""
    for rank, tensor in enumerate(marked):
        for part, numbers in enumerate(tensor.tensor_split(p) if whole else [tensor]):
            if numbers.numel():
                yield rank, part if whole else rank, [counts(number, p) for number in numbers.flatten().tolist()]


def counts(number, p):
    """How often each rank's numbers are in this one; None if they were not added."""
    if number != number or number != int(number) or not 0 <= number < BASE**p:
        return None
    return [int(number) // BASE**rank % BASE for rank in range(p)]


def unfinished(tally):
    """Of the numbers of a part, those that are not the sum."""
    return [each for each in tally if each is None or set(each) != {1}]


def half_way(tally):
    """Of an all-reduce: every part is finished, but not on all ranks. Then the reduce-scatter is right."""
    finished = {}  # part -> a rank that has it
    for rank, part, numbers in tally:
        if not unfinished(numbers):
            finished.setdefault(part, rank)
    wrong = [(rank, part, unfinished(numbers)) for rank, part, numbers in tally if unfinished(numbers)]
    if not wrong or len(finished) < len({part for _, part, _ in tally}):
        return None
    rank, part, wrong = wrong[0]
    times = max(wrong[0] or [0])
    what = "it did not arrive, or was overwritten"
    if times > 1:
        what = f"numbers are counted {times} times: it was added to what stood there, and should be copied"
    return (
        f"the first half is right, and rank {finished[part]} has the finished part {part} of the sum. But on rank "
        f"{rank} {what}. Look at the second half"
    )


def say(rank, part, numbers, whole):
    wrong = unfinished(numbers)
    if not wrong or wrong[0] is None:
        return None
    digits, where = wrong[0], f"on rank {rank}, in part {part} of the sum"
    if len(wrong) < len(numbers):
        where += f" (in {len(wrong)} of its {len(numbers)} numbers: are the parts those of tensor_split?)"
    missing = [source for source, count in enumerate(digits) if count == 0]
    double = [source for source, count in enumerate(digits) if count > 1]
    if len(missing) == len(digits) - 1 and not double:
        (only,) = [source for source in range(len(digits)) if source not in missing]
        return f"{where}, there are only the numbers of rank {only}: {NOT_ADDED}{OVERWRITTEN if whole else ELSEWHERE}"
    words = []
    if missing:
        words.append(f"the numbers of {ranks_in_words(missing)} are missing: a hop that was not made or not added")
    if double:
        words.append(f"the numbers of {ranks_in_words(double)} are counted {max(digits)} times")
    return f"{where}, {', and '.join(words)}"
