"""A film keeps each rank's row after each step, and the order in which its sums were added."""

import pytest
import torch
import torch.distributed as dist
from visuals.drawn import assert_can_be_read
from visuals.drawn import texts as drawn_texts

from tinydist import visuals
from tinydist.visuals.step_cells import Spelled, folded, texts_of
from tinydist.visuals.steps import arrivals


def my_row():
    return torch.tensor([1.0, 2.0, 3.0, 4.0]) * 10 ** dist.get_rank()


def star(x, after_step):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    arrived = torch.empty_like(x)
    for other in range(1, ranks):
        if rank == other:
            dist.send(x, dst=0)
        if rank == 0:
            dist.recv(arrived, src=other)
            x += arrived
        after_step()


def chain_of_part_1(x, after_step):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    part = x[:1]
    arrived = torch.empty_like(part)
    for step in range(ranks - 1):
        sender, receiver = (1 + step) % ranks, (2 + step) % ranks
        if rank == sender:
            dist.send(part, receiver)
        if rank == receiver:
            dist.recv(arrived, sender)
            part.copy_(arrived + part)
        after_step()


def everybody_to_everybody(x, after_step):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    parts, others = x.split(1), [other for other in range(ranks) if other != rank]
    arrived = {other: torch.empty(1) for other in others}
    messages = [dist.P2POp(dist.isend, parts[other], other) for other in others]
    messages += [dist.P2POp(dist.irecv, arrived[other], other) for other in others]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    for other in others:
        parts[rank].add_(arrived[other])
    after_step()


def frames(algorithm):
    """[rank][step] -> row"""
    return visuals.film(algorithm, my_row).results


def test_letters_stand_in_the_order_of_addition():
    assert [row[0] for row in frames(star)[0]] == ["A1", "AB1", "ABC1", "ABCD1"]
    assert [each[-1][0] for each in frames(chain_of_part_1)] == ["BCDA1", "B1", "BC1", "BCD1"]
    sums = frames(everybody_to_everybody)
    assert [sums[rank][-1][rank] for rank in range(4)] == ["ABCD1", "BACD2", "CABD3", "DABC4"]


@pytest.mark.parametrize("add", [torch.add, torch.Tensor.add, lambda a, b: a + b], ids=["torch.add", "method", "plus"])
def test_any_addition_is_watched(add):
    def pairs(x, after_step):
        arrived = torch.empty_like(x)
        if dist.get_rank() == 0:
            dist.send(x, 1)
        else:
            dist.recv(arrived, 0)
            x.copy_(add(x, arrived))
        after_step()

    assert visuals.film(pairs, my_row, ranks=2).results[1][-1] == ["BA1", "BA2", "BA3", "BA4"]


def test_what_was_not_added_is_in_the_order_of_ranks():
    def torchs(x, after_step):
        dist.all_reduce(x)
        after_step()

    assert frames(torchs)[2][-1] == ["ABCD1", "ABCD2", "ABCD3", "ABCD4"]


def test_a_sum_of_all_has_its_letters_if_there_is_room():
    assert texts_of(Spelled("BCDA1"), 4) == ("BCDA1", "BCDA", "BC\nDA", "Σ")
    assert texts_of(Spelled("BCD1"), 4) == ("BCD1", "BCD", "BC\nD", "3/4")
    assert folded("A") == "A"


@pytest.mark.parametrize("algorithm", [star, chain_of_part_1, everybody_to_everybody])
def test_films_can_be_read(algorithm):
    figure = visuals.steps(visuals.film(algorithm, my_row))
    assert_can_be_read(figure)


def test_two_lines_where_one_has_no_room():
    film = visuals.film(star, my_row)
    (last,) = visuals.steps(film, only=[3]).axes
    assert "ABCD1" in {text.get_text() for text in last.texts}
    assert "AB\nCD" in {text.get_text() for text, _ in drawn_texts(visuals.steps(film))}


def test_each_summand_has_an_arrow():
    film = visuals.film(everybody_to_everybody, my_row)
    before, after = zip(*film.results)
    messages = [(a, b) for a in range(4) for b in range(4) if a != b]
    assert sorted(arrivals(after, before, messages)) == [(a, b, b) for a, b in messages]
