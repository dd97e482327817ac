"""Puzzles: a cell says what is wrong with its function, or that it is solved; and the function stays what it is."""

import pytest
import torch
import torch.distributed as dist

from tinydist.lab.puzzle import ends_with, puzzle

NOT_YET = "Not yet. Edit the code above, and run this cell again.\n"


def hangs():
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1))


def stands_still():
    dist.all_reduce(torch.ones(2 + dist.get_rank()))


def rank():
    return dist.get_rank()


def heard():
    """What each of two ranks has from the other."""
    rank = dist.get_rank()
    numbers = [torch.zeros(1), torch.zeros(1)]
    dist.all_gather(numbers, torch.full((1,), float(rank)))
    return numbers[1 - rank].item()


def one_group_by_its_members():
    group = dist.new_group([0]) if dist.get_rank() == 0 else None
    if group:
        dist.all_reduce(torch.ones(1), group=group)
    return heard()


def does_not_wait():
    arrived = torch.zeros(1)
    dist.isend(torch.full((1,), float(dist.get_rank())), 1 - dist.get_rank())
    dist.recv(arrived, 1 - dist.get_rank())
    return arrived.item()


@pytest.mark.parametrize(
    "function, wanted, said",
    [
        (heard, [1, 0], "Solved: heard does what it should.\n"),
        (rank, [1, 0], NOT_YET + "All ranks end, but they return [0, 1] and should return [1, 0].\n"),
        (rank, [0, 1], NOT_YET + "All ranks return what they should. But nobody sent anything."),
        (does_not_wait, [1, 0], NOT_YET + "All ranks return what they should. But rank 0 does not wait for 1 message"),
        (one_group_by_its_members, [1, 0], NOT_YET + "call 1 of new_group, which all ranks of the world make in one"),
        (hangs, [None, None], NOT_YET + "no rank can run: 1 of 2 ranks wait for calls that can never complete\n"),
        (stands_still, [None, None], NOT_YET + "call 1 on the world of ranks 0-1: the shapes differ\n"),
    ],
)
def test_a_puzzle_shows_what_came_of_it(function, wanted, said, capsys):
    assert puzzle(ends_with(wanted, ranks=2))(function) is function
    assert capsys.readouterr().out.startswith(said)


def swapped(number):
    other, mine, theirs = 1 - dist.get_rank(), torch.tensor([number]), torch.tensor([0])
    sent = dist.isend(mine, other)
    dist.recv(theirs, other)
    sent.wait()
    return theirs.item()


def a_constant(number):
    swapped(number)
    return 1 - dist.get_rank()


def the_others(numbers):
    return numbers[::-1]


def test_a_constant_does_not_solve_a_puzzle_with_numbers(capsys):
    check = ends_with(the_others, numbers=[0, 1])
    puzzle(check)(swapped)
    assert capsys.readouterr().out.startswith("Solved: swapped does what it should.\n")
    puzzle(check)(a_constant)
    said = capsys.readouterr().out
    assert said.startswith(NOT_YET + "With the numbers [0, 1] it is right, but with [")
    assert "but they return [1, 0] and" in said


def test_of_the_given_numbers_nothing_is_said_but_what_is_wrong(capsys):
    puzzle(ends_with(the_others, numbers=[3, 7]))(a_constant)
    assert capsys.readouterr().out == NOT_YET + "All ranks end, but they return [1, 0] and should return [7, 3].\n"


def test_any_check_says_what_is_wrong(capsys):
    puzzle(lambda function: function(3) and "it should return 0, not 3")(abs)
    assert capsys.readouterr().out == NOT_YET + "it should return 0, not 3\n"


def test_an_error_in_an_answer_is_an_error_of_the_cell():
    with pytest.raises(ZeroDivisionError):
        puzzle(ends_with([0], ranks=1))(lambda: 1 / 0)


def by_a_sum(number):
    """It swaps, and no rank sends to another."""
    total = torch.tensor([number])
    dist.all_reduce(total)
    return total.item() - number


def test_a_puzzle_of_messages_is_not_solved_by_a_collective(capsys):
    check = ends_with(the_others, numbers=[0, 1], messages=True)
    puzzle(check)(swapped)
    assert capsys.readouterr().out.startswith("Solved")
    puzzle(check)(by_a_sum)
    assert capsys.readouterr().out.startswith(
        NOT_YET + "All ranks return what they should. But no rank has sent to ano"
    )


def sums_of_pairs(numbers):
    return [numbers[0] + numbers[1]] * 2 + [numbers[2] + numbers[3]] * 2


def in_pairs(number):
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    total = torch.tensor([number])
    dist.all_reduce(total, group=groups[dist.get_rank() // 2])
    return total.item()


def in_the_world(number):
    numbers = [torch.zeros(1, dtype=int) for _ in range(4)]
    dist.all_gather(numbers, torch.tensor([number]))
    first = dist.get_rank() // 2 * 2
    return (numbers[first] + numbers[first + 1]).item()


def test_a_puzzle_of_groups_is_not_solved_in_the_world(capsys):
    check = ends_with(sums_of_pairs, numbers=[1, 2, 3, 4], groups=[[1, 0], [2, 3]])
    puzzle(check)(in_pairs)
    assert capsys.readouterr().out.startswith("Solved")
    puzzle(check)(in_the_world)
    assert "But nothing was summed in a group of ranks 0-1: make it, and call the" in capsys.readouterr().out
