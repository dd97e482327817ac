"""What is odd about an order of passes, in words: the first thing that is not as in the reference."""

from itertools import groupby, takewhile

from tinydist.lab.author import many
from tinydist.pipeline_parallel.schedule import BACKWARD, FORWARD, RECOMPUTE

KINDS = ((FORWARD, "forwards"), (BACKWARD, "backwards"))


def odd(mine, its):
    """Programs, by rank. Empty, if they have other passes, or backward in halves. Where forwards are run again is not
    looked at; that none is, is said."""
    if any(again(its)) and not any(again(mine)):
        return "No forward is run again: so a rank holds each microbatch whole, from F to B"
    mine, its = ([without_recomputation(program) for program in programs] for programs in (mine, its))
    whole = all(action.kind in (FORWARD, BACKWARD) for program in its for action in program)
    if not whole or [sorted(each) for each in mine] != [sorted(each) for each in its]:
        return ""
    looks = (
        look(rank, mine, its)
        for look in (turns, microbatches, too_far, not_far, one_by_one)
        for rank in range(len(mine))
    )
    return next(filter(None, looks), "")


def again(programs):
    return [action for program in programs for action in program if action.kind == RECOMPUTE]


def without_recomputation(program):
    return [action for action in program if action.kind != RECOMPUTE]


def turns(rank, mine, its):
    """Of stages."""
    for kind, name in KINDS:
        runs = [
            [
                (stage, len(list(run)))
                for stage, run in groupby(action.stage for action in each[rank] if action.kind == kind)
            ]
            for each in (mine, its)
        ]
        for (stage, length), (other, right) in zip(*runs):
            if (stage, length) != (other, right):
                return (
                    f"Rank {rank}'s {name} take {length} of stage {stage} in a row, where {right} of stage {other} are "
                    "right. Stages take turns, each with a group of P microbatches"
                )


def microbatches(rank, mine, its):
    for kind, name in KINDS:
        first, here = ([action.microbatch for action in mine[each] if action.kind == kind] for each in (0, rank))
        if first != here:
            return (
                f"Rank 0 does its {name} in the order {first}, rank {rank} in the order {here}: so one waits for a "
                "microbatch while another is there"
            )


def too_far(rank, mine, its):
    count, right = ahead(rank, mine), ahead(rank, its)
    if count > right:
        return f"Rank {rank} does {many(count, 'forward')} before its first backward, which could begin sooner"


def not_far(rank, mine, its):
    count, right = ahead(rank, mine), ahead(rank, its)
    if 0 < count < right:
        return (
            f"Rank {rank} does {many(count, 'forward')} before its first backward: it waits, where it could do another"
        )


def ahead(rank, programs):
    return len(warm_up(programs[rank]))


def warm_up(program):
    return list(takewhile(lambda action: action.kind == FORWARD, program))


def one_by_one(rank, mine, its):
    for step, (action, right) in enumerate(zip(mine[rank], its[rank])):
        if action.kind != right.kind:
            return (
                f"Rank {rank} does {mine[rank][step - 1]} and {action} one after the other (step {step}): after the "
                "warm-up, a forward and a backward take turns"
            )
