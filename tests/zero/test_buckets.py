"""Buckets: who owns what of them; their states; gradients that are taken, reduced, and kept or freed."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_training import tiny_mlp
from torch import nn
from zero.ladder import stage_1, stage_2
from zero.test_sharding import shapes, with_both_shardings

import tinydist
from tinydist.zero.buckets import BucketState, ShardedBucket


@with_both_shardings
@given(shapes.filter(lambda shapes: sum(map(math.prod, shapes))), st.integers(1, 5))
def test_all_own_everything_once(sharding, shapes, ranks):
    """Each rank's segments, put at their places in the parameters, are the parameters."""

    def program():
        parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
        bucket = ShardedBucket(parameters, sharding)
        own = [(s.start, bucket.shard[s.place : s.place + s.size].clone()) for s in bucket.segments.values()]
        return own, [parameter.detach().flatten() for parameter in parameters]

    results = tinydist.launch(program, ranks, observe=False).results
    for number, whole in enumerate(results[0][1]):
        found = torch.full_like(whole, math.nan)
        for own, _ in results:
            start, segment = own[number]
            assert found[start : start + len(segment)].isnan().all(), "owned twice"
            found[start : start + len(segment)] = segment
        assert torch.equal(found, whole)


def test_the_master_of_fp32_is_no_copy_and_of_16_bits_is():
    def program(dtype):
        bucket = ShardedBucket([nn.Parameter(torch.ones(6, dtype=dtype))])
        master, whole = bucket.master.untyped_storage(), bucket.unsharded.untyped_storage()
        return bucket.master.dtype, master.data_ptr() == whole.data_ptr()

    for dtype, precise, shared in [
        (torch.float32, torch.float32, True),
        (torch.float64, torch.float64, True),
        (torch.float16, torch.float32, False),
        (torch.bfloat16, torch.float32, False),
    ]:
        assert tinydist.launch(program, 2, dtype).results == [(precise, shared)] * 2


@pytest.mark.parametrize("times", [1, 2])
def test_gradients_add_up_and_become_the_mean_over_the_ranks(times):
    def program():
        parameter = nn.Parameter(torch.zeros(5))
        bucket = ShardedBucket([parameter])
        for _ in range(times):
            parameter.grad = torch.arange(5.0) * (torch.distributed.get_rank() + 1)
            bucket.accumulate_grad(parameter)
            assert parameter.grad is None and not bucket.missing
        for _ in bucket.reduction():
            pass
        return bucket.grad.tolist()

    mean = [1.5 * times * number for number in range(5)]
    assert tinydist.launch(program, 2).results == [mean[:3], [*mean[3:], 0.0]]


@with_both_shardings
def test_states_and_what_the_parameters_are_in_each(sharding):
    def program():
        parameter = nn.Parameter(torch.arange(6.0).view(3, 2))
        bucket, seen = ShardedBucket([parameter], sharding, resharded=True), []
        for act in (lambda: None, bucket.start_gather, bucket.gather, bucket.gather, bucket.free, bucket.free):
            act()
            seen.append((bucket.state, parameter.numel() == 6, bucket.unsharded.untyped_storage().nbytes() > 0))
        bucket.start_gather()
        bucket.free()
        bucket.gather()
        return seen, parameter.tolist()

    sharded, gathering, whole = (
        (BucketState.SHARDED, False, False),
        (BucketState.GATHERING, False, True),
        (BucketState.UNSHARDED, True, True),
    )
    for seen, numbers in tinydist.launch(program, 2).results:
        assert seen == [sharded, gathering, whole, whole, sharded, sharded]
        assert numbers == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


@pytest.mark.parametrize("stage, whole", [(stage_1, True), (stage_2, False)])
def test_stage_2_keeps_of_gradients_what_a_rank_owns_and_stage_1_all(stage, whole):
    def program():
        zero = stage(tiny_mlp())
        zero.module(torch.ones(1, 8)).sum().backward()
        kept = [bucket.grad.untyped_storage().nbytes() // bucket.grad.nbytes for bucket in zero.buckets]
        return kept, [bucket.gradients is not None for bucket in zero.buckets]

    for kept, there in tinydist.launch(program, 4).results:
        assert set(kept) == {4 if whole else 1} and set(there) == {whole}
