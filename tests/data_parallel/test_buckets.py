"""Buckets: what is in them, and that gradients are views of them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tinydist.data_parallel import Bucket, in_buckets


def parameters(*sizes, dtype=torch.float32):
    return [nn.Parameter(torch.zeros(size, dtype=dtype)) for size in sizes]


def numbers_in(buckets):
    return [[parameter.numel() for parameter in bucket.parameters] for bucket in buckets]


def test_they_fill_from_the_last_parameter_on():
    assert numbers_in(in_buckets(parameters(1, 2, 3, 4, 5), size=20)) == [[5], [4, 3], [2, 1]]
    assert numbers_in(in_buckets(parameters(1, 2, 3, 4, 5), size=1e9)) == [[5, 4, 3, 2, 1]]
    assert numbers_in(in_buckets(parameters(1, 2, 3), size=1)) == [[3], [2], [1]]
    assert numbers_in(in_buckets([])) == []


def test_the_first_is_smaller():
    assert numbers_in(in_buckets(parameters(1, 1, 1, 1, 1, 1), size=12, first=4)) == [[1], [1, 1, 1], [1, 1]]


def test_one_dtype_in_a_bucket_however_they_alternate():
    mixed = [*parameters(1, 2), *parameters(3, dtype=torch.float64), *parameters(4)]
    assert numbers_in(in_buckets(mixed)) == [[3], [4, 2, 1]], "the one that is full first comes first"
    norms_between = [each for _ in range(9) for each in (*parameters(4, dtype=torch.bfloat16), *parameters(1))]
    assert numbers_in(in_buckets(norms_between, size=24)) == [[4] * 3, [1] * 6, [4] * 3, [4] * 3, [1] * 3]


def test_a_gradient_takes_the_bytes_of_its_own_dtype():
    first, second = parameters(2, 3, dtype=torch.bfloat16)
    assert numbers_in(in_buckets([first, second], size=8)) == [[3, 2]]
    first.grad_dtype = second.grad_dtype = torch.float32
    one, _ = in_buckets([first, second], size=8)
    assert one.flat.dtype == torch.float32 and one.flat.nbytes == 12


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 400), st.integers(1, 400))
def test_every_parameter_is_in_one_and_only_the_last_may_be_short(sizes, size, first):
    buckets = in_buckets(parameters(*sizes), size, first)
    assert [n for bucket in numbers_in(buckets) for n in bucket] == sizes[::-1]
    for number, bucket in enumerate(buckets[:-1]):
        limit = size if number else min(first, size)
        assert bucket.flat.nbytes >= limit > bucket.flat.nbytes - bucket.parameters[-1].nbytes


def test_a_size_that_holds_nothing():
    with pytest.raises(ValueError, match="buckets: bucket size must be > 0 bytes, got 0"):
        in_buckets(parameters(1), size=0)


def test_gradients_become_views():
    first, second = parameters(2, 3)
    bucket = Bucket([second, first])
    second.grad = torch.tensor([1.0, 2.0, 3.0])
    bucket.take(second)
    assert bucket.missing == {first}
    bucket.take(first)  # it has no gradient: zeros
    assert bucket.flat.tolist() == [1, 2, 3, 0, 0] and not bucket.missing
    assert first.grad is None
    bucket.flat.mul_(10)
    assert second.grad.tolist() == [10, 20, 30]
    before = second.grad
    bucket.take(second)
    assert second.grad is before, "a view is not copied again"
