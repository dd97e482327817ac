"""Which samples a rank sees, and what its loss counts."""

import re

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data.distributed import DistributedSampler

import tinydist
from tinydist.data_parallel import Sampler, average_each, sample_weight, shard_batch


@given(st.integers(1, 5), st.integers(0, 40), st.booleans(), st.booleans(), st.integers(0, 9), st.integers(0, 3))
def test_order_is_that_of_torchs_own(ranks, more, shuffle, drop_last, seed, epoch):
    samples = ranks + more

    def program():
        ours = Sampler(samples, shuffle=shuffle, seed=seed, drop_last=drop_last)
        theirs = DistributedSampler(range(samples), shuffle=shuffle, seed=seed, drop_last=drop_last)
        ours.set_epoch(epoch), theirs.set_epoch(epoch)
        assert len(ours) == len(theirs)
        return list(ours), list(theirs)

    for ours, theirs in tinydist.launch(program, ranks, observe=False).results:
        assert ours == theirs


def epochs(set_epoch):
    sampler = Sampler(12, seed=3)
    orders = []
    for epoch in range(2):
        if set_epoch:
            sampler.set_epoch(epoch)
        orders.append(list(sampler))
    return orders


def test_epochs_differ_only_with_set_epoch():
    for forgotten in tinydist.launch(epochs, 3, False).results:
        assert forgotten[0] == forgotten[1]
    ranks = tinydist.launch(epochs, 3, True).results
    assert all(first != second for first, second in ranks)
    for epoch in range(2):
        assert sorted(sample for orders in ranks for sample in orders[epoch]) == list(range(12))


def test_fewer_samples_than_ranks():
    with pytest.raises(ValueError, match=r"Sampler: fewer samples \(2\) than ranks \(4\)"):
        tinydist.launch(lambda: Sampler(2), 4)


def test_shares():
    batch = torch.arange(7), torch.arange(7) * 10
    results = tinydist.launch(lambda: [t.tolist() for t in shard_batch(batch)], 3).results
    assert results == [[[0, 1, 2], [0, 10, 20]], [[3, 4], [30, 40]], [[5, 6], [50, 60]]]


@pytest.mark.parametrize("rows", [[2, 2], [8, 7]])
def test_shares_of_too_little(rows):
    with pytest.raises(ValueError, match=re.escape(f"got {sorted(set(rows))} (rank 0)")):
        tinydist.launch(lambda: shard_batch([torch.ones(count) for count in rows]), 4)


def gradient(weighted, counts):
    """Of a mean over tokens, of which each rank has another number."""
    rank = dist.get_rank()
    tokens = torch.arange(sum(counts), dtype=torch.float64).split(counts)[rank]
    w = torch.ones(1, dtype=torch.float64, requires_grad=True)
    loss = (w * tokens).mean() if len(tokens) else 0 * w.sum()
    (loss * (sample_weight(len(tokens)) if weighted else 1)).backward()
    average_each([w])
    return w.grad.item()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5).filter(any))
def test_weighted_means_are_the_mean_of_all(counts):
    mean = (sum(counts) - 1) / 2
    for found in tinydist.launch(gradient, len(counts), True, counts, observe=False).results:
        assert found == pytest.approx(mean)


def test_the_mean_of_means_is_not():
    assert tinydist.launch(gradient, 2, False, [3, 1]).results == [2.0] * 2  # and not 1.5


def test_no_samples_at_all():
    with pytest.raises(ValueError, match="sample_weight: no rank has any samples"):
        tinydist.launch(lambda: sample_weight(0), 2)
