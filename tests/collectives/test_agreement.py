"""Ranks that bring different modules are told so, all of them; the others start alike."""

import re

import pytest
import torch
import torch.distributed as dist
from torch import nn

import tinydist
from tinydist.collectives.agreement import broadcast_all, check_same_parameters, numbers_of_root


def differing(change):
    def program():
        module = nn.Linear(2, 2)
        if dist.get_rank() == 2:
            module = change(module) or module
        try:
            check_same_parameters("Sharded", module)
        except ValueError as error:
            return str(error)

    return tinydist.launch(program, 3).results


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda module: nn.Linear(2, 3), "rank 2 has 2 and rank 0 has 2; first difference: bias"),
        (lambda module: nn.Linear(2, 2, bias=False), "rank 2 has 1 and rank 0 has 2; first difference: bias"),
        (lambda module: module.double(), "first difference: bias"),
        (lambda module: [module.weight.requires_grad_(False), None][1], "first difference: weight"),
    ],
)
def test_all_ranks_are_told(change, words):
    first, *others = differing(change)
    assert re.match("Sharded: parameters differ between ranks: rank 2 ", first) and words in first
    assert others == [first, first]


def test_alike():
    assert differing(lambda module: None) == [None] * 3


def test_fake_ranks_are_alike():
    def program():
        check_same_parameters("Sharded", nn.Linear(2, 2))

    assert not any(map(any, tinydist.launch(program, 3, fake=True).traffic))


def test_all_start_as_the_root():
    def program():
        tensors = [torch.full((2,), float(dist.get_rank())) for _ in range(3)]
        broadcast_all(tensors, root=1)
        return torch.cat(tensors).tolist()

    assert tinydist.launch(program, 3).results == [[1.0] * 6] * 3


def test_the_numbers_of_a_groups_first_rank():
    def program():
        group = [dist.new_group([0]), dist.new_group([1, 2])][dist.get_rank() > 0]
        return numbers_of_root([dist.get_rank(), 7], "cpu", group)

    assert tinydist.launch(program, 3).results == [[0, 7], [1, 7], [1, 7]]
    assert tinydist.launch(program, 3, fake=True).results == [[rank, 7] for rank in range(3)], "taken to be alike"
