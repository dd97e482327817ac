"""A puzzle: a buggy program in a notebook cell, to be fixed in place.

    @puzzle(ends_with([1.0, 0.0], ranks=2))
    def swap():
        ...

It is run and judged whenever its cell is, and what came of it stands below the cell.
"""

import random
from types import SimpleNamespace

import torch.distributed as dist

from ..console.page import Styled, say
from ..launching.launch import launch
from ..rules import ranks_in_words
from ..simulator.deadlock import DeadlockError
from ..simulator.matching import MismatchError
from ..simulator.stuck import StuckError
from .messages import left_open, nobody, transfers

TIMEOUT = 20  # seconds, for real processes
REPORTS = DeadlockError, MismatchError, StuckError, TimeoutError
GREEN = "font-weight: bold; color: var(--jp-success-color1, #2e7d32)"
RED = "font-weight: bold; color: var(--jp-error-color1, #d32f2f)"


def puzzle(check):
    """Judge the function that follows: ``check(function)`` returns what is wrong with it, or None."""

    def judge(function):
        try:
            wrong = check(function)
        except REPORTS as report:
            wrong = str(report)
        if wrong:
            say(Styled("Not yet. Edit the code above, and run this cell again.", RED), wrong)
        else:
            say(Styled(f"Solved: {function.__name__} does what it should.", GREEN))
        return function

    return judge


def ends_with(wanted, ranks=None, numbers=None, groups=(), messages=False):
    """A check: the function returns ``wanted[rank]`` on each of so many ranks, and none of them waits for ever.
    Something was sent, all messages were waited for, and all ranks made the same groups: else real processes would
    hang, or know nothing of one another.

    Something went through each of the ``groups``, lists of ranks; and with ``messages``, from one rank to another.

    With ``numbers``, one for each rank, ``wanted`` is a function of them, and the puzzle takes its rank's number as its
    argument. It is then run again with numbers drawn at random, so that it has to compute what it returns.
    """
    if numbers is None:
        return lambda function: wrong_with(function, wanted, [()] * ranks, groups, messages)

    def check(function):
        wrong = wrong_with(function, wanted(numbers), [(number,) for number in numbers], groups, messages)
        if wrong:
            return wrong
        drawn = random.sample(range(10, 100), len(numbers))
        wrong = wrong_with(function, wanted(drawn), [(number,) for number in drawn])
        return wrong and f"With the numbers {numbers} it is right, but with {drawn} it is not. {wrong}"

    return check


def wrong_with(function, wanted, arguments, groups=(), messages=False):
    """What is wrong if rank r calls function(*arguments[r]), or None."""
    run = launch(and_a_group_of_all, len(arguments), function, arguments, timeout=TIMEOUT)
    if run.results != wanted:
        return f"All ranks end, but they return {run.results} and should return {wanted}."
    wrong = run.record and of_the_way(run, groups, messages)  # of processes nothing is known
    return wrong and f"All ranks return what they should. But {wrong}."


def and_a_group_of_all(function, arguments):
    """What it returns. The group does not come about where some ranks have made groups that others have not."""
    result = function(*arguments[dist.get_rank()])
    dist.new_group()
    return result


def of_the_way(run, groups, messages):
    """What is left open; and what it should use and does not."""
    made = transfers(run)
    if messages and not any(each.name == "message" for each in made):
        return "no rank has sent to another: use send and recv, or isend and irecv"
    used = {frozenset(each.ranks) for each in made}
    for ranks in groups:
        if frozenset(ranks) not in used:
            return f"nothing was summed in a group of {ranks_in_words(ranks)}: make it, and call the collective there"
    return left_open(SimpleNamespace(run=run)) or nobody(map(sum, run.traffic))
