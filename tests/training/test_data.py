"""The order of the data: each window once an epoch, the same rows on every mesh; and one rank that reads for others."""

import json
import re

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as some

from tinydist import launch
from tinydist.training import Batches, TokenFile, broadcast_data
from tinydist.training.data import permuted

COUNTING = np.arange(10_001, dtype=np.uint16)  # a token is its own place


def first_tokens(batches, steps):
    return torch.cat([batches[step][0][:, 0] for step in steps]).tolist()


@given(some.integers(1, 3000), some.integers(0, 2**64), some.integers(0, 100))
def test_a_permutation_has_every_number_once(size, seed, epoch):
    assert sorted(permuted(np.arange(size), size, (seed, epoch))) == list(range(size))


def test_another_seed_or_another_epoch_is_another_order():
    orders = {tuple(permuted(np.arange(50), 50, key)) for key in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]}
    assert len(orders) == 5 and tuple(range(50)) not in orders


@given(some.integers(1, 9), some.integers(1, 40), some.integers(2, 400), some.integers(0, 2**32))
def test_each_window_comes_once_an_epoch(context, batch, length, seed):
    windows = (length - 1) // context
    if windows == 0:
        return
    batches = Batches(COUNTING[:length], batch, context, seed)
    seen = first_tokens(batches, range(-(-2 * windows // batch)))
    for epoch in range(2):
        found = sorted(seen[epoch * windows : (epoch + 1) * windows])
        assert found == list(range(0, windows * context, context))


@given(some.sampled_from([1, 2, 3, 4, 6, 8, 12, 24]), some.integers(0, 10**12), some.integers(0, 2**32))
def test_the_rows_of_all_ranks_are_the_global_batch(ranks, step, seed):
    batches = Batches(COUNTING, 24, 7, seed)
    rows = [Batches(COUNTING, 24, 7, seed).rows(step, rank, ranks) for rank in range(ranks)]
    for whole, parts in zip(batches[step], zip(*rows)):
        assert torch.equal(torch.cat(parts), whole)
        assert whole.dtype == torch.int64 and whole.shape == (24, 7)


def test_targets_are_the_tokens_after():
    tokens, targets = Batches(COUNTING, 3, 5)[0]
    assert torch.equal(targets, tokens + 1) and torch.equal(tokens, tokens[:, :1] + torch.arange(5))


class Read(TokenFile):
    """Tokens that write down which of them are read."""

    def __init__(self, count):
        self.count, self.parts = count, []

    def __len__(self):
        return self.count

    def __getitem__(self, part):
        self.parts.append(part)
        return np.zeros(part.stop - part.start, np.uint16)


def test_a_rank_reads_its_own_rows_alone_of_a_thousand_million_tokens():
    tokens = Read(10**9)
    batches = Batches(tokens, 8, 64)
    batches.rows(10**12, 1, 4)
    assert len(tokens.parts) == 2 and {part.stop - part.start for part in tokens.parts} == {65}


def test_what_divides_into_no_rows_is_refused():
    with pytest.raises(
        ValueError, match=r"^Batches: batch \(10\) must be divisible by ranks \(4\), and rank \(0\) must be < ranks"
    ):
        Batches(COUNTING, 10, 8).rows(0, 0, 4)
    with pytest.raises(ValueError, match=r"^Batches: a window has context \+ 1 = 65 tokens, but there are 64$"):
        Batches(COUNTING[:64], 1, 64)


THINGS = {
    "flag": torch.tensor(True),
    "tokens": torch.arange(6).view(2, 3).T,
    "weights": torch.ones(3, dtype=torch.bfloat16),
    "none": torch.empty(0, 4),
}


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_one_rank_reads_and_all_have_it_in_two_messages(ranks):
    readers = []

    def program():
        def read():
            readers.append(dist.get_rank())
            return THINGS

        return broadcast_data(read)

    run = launch(program, ranks)
    assert readers == [0]
    for found in run.results:
        assert found.keys() == THINGS.keys()
        for name, tensor in THINGS.items():
            torch.testing.assert_close(found[name], tensor, rtol=0, atol=0)
    broadcasts = {event.transfer for event in run.trace.events if event.transfer}
    assert len(broadcasts) == (2 if ranks > 1 else 0)


def test_each_tensor_group_has_its_own():
    def program():
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        mine = groups[dist.get_rank() // 2]
        return broadcast_data(lambda: {"rank": torch.tensor([dist.get_rank()])}, mine)["rank"].item()

    assert launch(program, 4).results == [0, 0, 2, 2]


def test_if_the_reader_fails_all_fail():
    def program():
        try:
            broadcast_data(lambda: json.loads("{"))
        except (RuntimeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    first, *others = launch(program, 3).results
    assert first.startswith("JSONDecodeError: Expecting")
    assert others == [f"RuntimeError: broadcast_data: reading failed on rank 0 of the group: {first}"] * 2


def test_what_cannot_be_told_in_one_message_fails_on_all():
    def program():
        try:
            broadcast_data(lambda: {str(number): torch.zeros(1) for number in range(500)})
        except (RuntimeError, ValueError) as error:
            return str(error)

    for said in launch(program, 2).results:
        assert re.search(r"broadcast_data: tensor metadata \(\d+ bytes\) exceeds 4096 bytes", said)
