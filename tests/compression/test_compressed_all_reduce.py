"""The compressed all-reduce: what is sent and what is kept add up; bytes; errors."""

import math

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from unobserved import launch

import tinydist
from tinydist.compression import compressed_all_reduce, error_buffers
from tinydist.compression.bits import pack, unpack

WORLDS = pytest.mark.parametrize("p, size", [(1, 1), (1, 64), (2, 7), (3, 1), (3, 100), (8, 64), (8, 100)])


@given(st.lists(st.floats(-10, 10, width=32), min_size=8, max_size=64))
def test_bits_are_numpys(values):
    numbers = torch.tensor(values[: len(values) // 8 * 8])
    assert pack(numbers).tolist() == np.packbits(numbers.numpy() >= 0).tolist()
    assert torch.equal(unpack(pack(numbers)), torch.where(numbers >= 0, 1.0, -1.0))


def own(rank, size, step=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(100 * step + rank))


def steps(size, number):
    errors = error_buffers(size)
    results = []
    for step in range(number):
        tensor = own(dist.get_rank(), size, step)
        compressed_all_reduce(tensor, *errors)
        results.append(tensor)
    return results, errors


def plain(size, p, number):
    """The same with lists of tensors in place of ranks, in float64, and no bits."""
    padded = -(-size // (p * math.lcm(p, 8))) * p * math.lcm(p, 8)
    worker = [torch.zeros(padded, dtype=torch.float64) for _ in range(p)]
    server = torch.zeros(padded, dtype=torch.float64)

    def signs(numbers):
        return torch.where(numbers >= 0, 1.0, -1.0).double() * numbers.norm() / math.sqrt(len(numbers))

    for step in range(number):
        for rank in range(p):
            worker[rank][:size] += own(rank, size, step)
        sent = [signs(each) for each in worker]
        worker = [each - part for each, part in zip(worker, sent)]
        server += sum(sent) / p
        result = torch.cat([signs(chunk) for chunk in server.chunk(p)])
        server -= result
    return result[:size]


@WORLDS
def test_equals_the_plain_algorithm(p, size):
    for results, _ in launch(steps, p, size, 3).results:
        torch.testing.assert_close(results[-1].double(), plain(size, p, 3), rtol=1e-5, atol=1e-5)


@WORLDS
def test_nothing_is_lost(p, size):
    """What came out, and the errors that are left, are the mean of what went in: in all steps together."""
    ranks = launch(steps, p, size, 5).results
    went_in = sum(own(rank, size, step) for rank in range(p) for step in range(5)) / p
    came_out = sum(ranks[0][0])
    left = sum(worker for _, (worker, _) in ranks) / p + torch.cat([server for _, (_, server) in ranks])
    torch.testing.assert_close(came_out + left[:size], went_in, rtol=1e-4, atol=1e-4)
    assert all(torch.equal(mine, others) for results, _ in ranks for mine, others in zip(results, ranks[0][0]))


@WORLDS
def test_sends_a_bit_a_number_in_two_phases(p, size):
    padded = -(-size // (p * math.lcm(p, 8))) * p * math.lcm(p, 8)
    traffic = tinydist.launch(steps, p, size, 1).traffic
    assert [sum(row) for row in traffic] == [2 * (p - 1) * (padded // p // 8 + 4)] * p


def test_on_one_rank_the_sign_is_what_is_left_of_a_number():
    (results, _), *_ = launch(steps, 1, 64, 1).results
    assert torch.equal(results[0].sign(), own(0, 64).sign()) and len(results[0].abs().unique()) == 1


def test_a_nan_is_seen_everywhere():
    def program():
        tensor = torch.full((4,), torch.nan if dist.get_rank() else 1.0)
        compressed_all_reduce(tensor, *error_buffers(4))
        return tensor

    assert all(each.isnan().all() for each in launch(program, 2).results)


def test_errors_of_another_size():
    with pytest.raises(
        ValueError, match="20 numbers on 2 ranks need errors of 32 and 16 numbers, got 16 and 8"
    ) as error:
        launch(lambda: compressed_all_reduce(torch.ones(20), *error_buffers(5)), 2)
    assert "rank 0" in str(error.value)


@pytest.mark.parametrize("size, p", [(1, 1), (13, 2), (60, 3)])
def test_the_error_stays_bounded(size, p):
    """Without feedback a constant gradient would be off by as much in every step; so the mean of results is right."""

    def program():
        gradient = torch.randn(size, generator=torch.Generator().manual_seed(0))
        errors, total, off = error_buffers(size), torch.zeros(size), []
        for step in range(100):
            result = gradient.clone()
            compressed_all_reduce(result, *errors)
            total += result
            off.append((gradient - total / (step + 1)).norm() / gradient.norm())
        return off[0], off[-1]

    for first, last in launch(program, p).results:
        assert last < 0.2 and (size == 1 or last < first / 5)
