"""What an answer raised, in words that say what to mend."""

import sys

import pytest
import torch
import torch.distributed as dist

from tinydist.lab.errors import EMPTY_BATCH, LOOP, UNWRITTEN, words
from tinydist.lab.ranks import Case, Trial
from tinydist.simulator.stuck import StuckError


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


def test_a_rank_that_does_nothing():
    error = StuckError(3, 1.5, False, sys._getframe())
    expected = "rank 3 does nothing for 1.5 s. It sleeps, or waits for something that is no message."
    assert words(error) == expected


def test_a_rank_that_computes_without_end():
    text = words(StuckError(3, 1.5, True, sys._getframe()))
    assert text.startswith("it does not end: rank 3, at ") and text.endswith(f"\n{LOOP}")
