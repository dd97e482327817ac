"""Bytes held besides the arguments."""

import pytest
import torch

from tinydist.lab.errors import Wrong
from tinydist.lab.memory import held_besides, holds_at_most
from tinydist.lab.ranks import Case, Trial

CASE = Case(2, lambda rank: (torch.ones(100), 7))


def test_held_besides_the_arguments():
    assert held_besides(Trial(lambda tensor, seven: tensor.add_(1), CASE)) == [0, 0]
    assert held_besides(Trial(lambda tensor, seven: tensor + tensor, CASE)) == [400, 400]


def test_limit():
    trial = Trial(lambda tensor, seven: tensor.clone(), CASE)
    holds_at_most(trial, 400, "a copy")
    text = "rank 0 holds 400 bytes besides its tensor, where 399 are enough: less than a copy"
    with pytest.raises(Wrong, match=text):
        holds_at_most(trial, 399, "less than a copy")
    with pytest.raises(Wrong, match="rank 1 holds 400 bytes"):
        holds_at_most(trial, [400, 0], "of one rank")
