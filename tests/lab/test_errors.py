"""What an answer raised, in words that say what to mend."""

import sys

import pytest
import torch
import torch.distributed as dist

from tinydist.lab.cases import Case, Trial
from tinydist.lab.errors import EMPTY_BATCH, UNKNOWN, UNWRITTEN, words
from tinydist.simulator.stuck import StuckError

THIS_LINE = "text = words(StuckError(3, 1.5, False, sys._getframe()))"


def raised(answer):
    return words(Trial(answer, Case(1, lambda rank: ())).error)


def test_an_empty_batch():
    assert raised(lambda: dist.batch_isend_irecv([])).endswith(f"\n{EMPTY_BATCH}")


@pytest.mark.parametrize("answer", [lambda: [][0], lambda: dist.batch_isend_irecv(7)], ids=["list", "number"])
def test_other_errors_are_not_taken_for_one(answer):
    assert EMPTY_BATCH not in raised(answer)


@pytest.mark.parametrize("size", [-2, -(2**63) + 1, 2**63 - 1])
def test_a_size_that_nobody_has_sent(size):
    assert raised(lambda: torch.empty(size, 3)).endswith(f"\n{UNWRITTEN}")


def test_a_name_that_the_imports_would_have_made():
    assert raised(lambda: distributed.get_rank()).endswith(f"\n{UNKNOWN}")  # noqa: F821


def test_a_rank_that_does_nothing():
    text = words(StuckError(3, 1.5, False, sys._getframe()))
    start = "rank 3 does nothing for 1.5 s. It sleeps, or waits for something that is no message, at "
    assert text.startswith(start) and text.endswith("in test_a_rank_that_does_nothing: " + THIS_LINE)
