"""One test on simulated ranks: every rank runs its function, and one failure is reported, with what others did.

    rank 0   waits in all_reduce ............ \
    rank 1   AssertionError  <- reported       >  note: on rank 1 of 4; rank 3 failed, too; ranks 0, 2 wait in ...
    rank 2   waits in all_reduce ............ /
    rank 3   AssertionError

A rank that has failed does not stop the others: they go on until they have ended or no rank can run.
"""

import os
from collections import defaultdict
from traceback import TracebackException, extract_tb
from unittest import SkipTest

import pytest

from ..launching import launch
from ..launching.backends import before_first_launch
from ..rules import ranks_in_words
from ..simulator.call_sites import learners_traceback
from ..simulator.deadlock import DeadlockError
from .fixtures import on_this_rank, rank_here
from .given import example_context
from .own_copies import own_copies

SKIPPED = (pytest.skip.Exception, pytest.xfail.Exception, SkipTest)
OUTCOMES = (Exception, pytest.skip.Exception, pytest.fail.Exception)  # pytest's are no Exceptions


def load(processes):
    """What the first launch does, so that no test's time has it. It starts so many processes."""
    before_first_launch()
    if processes:
        launch(load, processes, 0)


def simulate(function, arguments, ranks, options):
    """Call ``function`` on each rank with its own copy of ``arguments``, (args, kwargs). Raises one rank's failure."""
    __tracebackhide__ = True
    failures, context = {}, example_context()  # by rank, the first to fail first
    own = own_copies(arguments, ranks)

    def program():
        rank = rank_here()
        args, kwargs = own[rank]
        try:
            with context():
                call(function, args, kwargs)
        except OUTCOMES as error:
            failures[rank] = error

    try:
        launch(program, ranks, backend="simulated", **options)
    except Exception as error:
        if not failures:
            raise
        raise verdict(failures, ranks, error) from None
    if failures:
        raise verdict(failures, ranks)


def call(function, args, kwargs):
    try:
        function(*args, **on_this_rank(kwargs))
    except SystemExit as end:  # launch would take sys.exit(0) for a rank that ends well
        raise RuntimeError(f"the test called sys.exit({end.code!r})").with_traceback(end.__traceback__) from None


def verdict(failures, ranks, end=None):
    """The failure to report: the first one that is no skip. ``end``: why the other ranks did not end."""
    real = [rank for rank, error in failures.items() if not isinstance(error, SKIPPED)]
    first = (real or [*failures])[0]
    error = failures.pop(first)
    error.__traceback__ = learners_traceback(error)
    if real:
        for note in [f"on rank {first} of {ranks}", *also(error, failures), *waits(end)]:
            error.add_note(note)
    return error


def also(error, others):
    """What other ranks raised: on the same line, or elsewhere."""
    alike = defaultdict(list)
    for rank, other in others.items():
        same = place(other) == place(error) and type(other) is type(error)
        alike["" if same else in_words(other)].append(rank)
    return [
        f"{ranks_in_words(ranks)} failed{' on the same line' * (not words)}, too{words}"
        for words, ranks in alike.items()
    ]


def in_words(error):
    """': ValueError: text (test_mean.py, line 7)'."""
    said = "".join(TracebackException(type(error), error, None).format_exception_only()).strip().splitlines()
    file, line = place(error)
    return f": {said[0]} ({os.path.basename(file)}, line {line})"


def place(error):
    """The learner's last line."""
    last = extract_tb(learners_traceback(error), limit=-1)
    return (last[0].filename, last[0].lineno) if last else ("", 0)


def waits(end):
    """Lines on ranks that did not end."""
    if end is None:
        return []
    if not isinstance(end, DeadlockError):
        return [f"then: {type(end).__name__}: {end}"]
    return [line.removeprefix("  ") for line in str(end).splitlines()[1:] if not line.endswith(": returned")]


def launch_for_a_test(*args, **options):
    __tracebackhide__ = True
    try:
        return launch(*args, **options)
    except BaseException as error:
        error.__traceback__ = learners_traceback(error)
        raise
