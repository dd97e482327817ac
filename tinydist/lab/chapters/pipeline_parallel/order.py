"""What there is to say of an order of passes: forwards before the first backward, and whether ranks agree."""

from itertools import takewhile

from ....pipeline_parallel.actions import BACKWARD, FORWARD


def ahead(program):
    """The forwards before the first backward."""
    return len(list(takewhile(lambda action: action.kind == FORWARD, program)))


def each_ahead(schedule):
    """By rank."""
    return [ahead(program) for program in schedule.programs]


def in_flight(schedule):
    """Those of 1F1B: a rank's first backward comes when the first microbatch is back from the last rank."""
    return [min(schedule.ranks - rank, schedule.microbatches) for rank in range(schedule.ranks)]


def another_order(schedule):
    """In words: the first rank that takes the microbatches in another order than rank 0."""
    for kind, name in ((FORWARD, "forwards"), (BACKWARD, "backwards")):
        orders = [[action.microbatch for action in program if action.kind == kind] for program in schedule.programs]
        for rank, each in enumerate(orders):
            if each != orders[0]:
                return (
                    f"Rank 0 does its {name} in the order {orders[0]}, rank {rank} in the order {each}: so one waits "
                    "for a microbatch while another is there"
                )
    return ""


def not_in_turn(schedule):
    """In words: the first place where, after the warm-up, a forward and a backward do not take turns."""
    for rank, program in enumerate(schedule.programs):
        warm_up, total = ahead(program) - 1, sum(action.kind == FORWARD for action in program)
        steady = program[warm_up : warm_up + 2 * (total - warm_up)]
        for step, action in enumerate(steady, start=warm_up):
            if (action.kind == FORWARD) != ((step - warm_up) % 2 == 0):
                return (
                    f"Rank {rank} does {program[step - 1]} and {action} one after the other (step {step}), with "
                    "forwards still to come: after the warm-up, a forward and a backward take turns"
                )
    return ""
