"""Bytes sent: 2, 2, 3 times (p-1)/p of the parameters; 2 without resharding; what torch's fully_shard sends."""

import pytest
import torch
from tiny_training import tiny_mlp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from zero.ladder import Alone, mine, stage_1, stage_2, stage_3, train

import tinydist

NBYTES = sum(p.nbytes for p in tiny_mlp().parameters())  # of each layer, and so of each row, divisible by 4 ranks


def step_of(make, ranks=4, **how):
    """What each rank sends in a step, the start taken off."""

    def program(steps):
        train(make(tiny_mlp()), mine, steps, **how)

    one, two = (tinydist.launch(program, ranks, steps, observe="communication") for steps in (1, 2))
    return [round(sum(two.traffic[rank]) - sum(one.traffic[rank])) for rank in range(ranks)]


def volume(times, ranks=4):
    return [times * (ranks - 1) * NBYTES // ranks] * ranks


@pytest.mark.parametrize("stage, times", [(stage_1, 2), (stage_2, 2), (stage_3, 3)])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_volume(stage, times, ranks):
    assert step_of(stage, ranks) == volume(times, ranks)


def test_without_resharding():
    assert step_of(lambda module: stage_3(module, reshard_after_forward=False)) == volume(2)


@pytest.mark.parametrize("microbatches", [1, 3])
def test_units_that_are_used_again_soon_stay_after_forward(microbatches):
    """The last one at once, the one before it after the last one's forward and backward, and so on."""
    *behind, last = [sum(p.numel() for p in layer.parameters()) for layer in tiny_mlp() if [*layer.parameters()]]
    all_but_first = 2 * (sum(behind[1:]) + last)
    for distance, kept in ((0, 0), (1, last), (2 * last, last), (2 * last + 1, last + behind[-1])):
        sent = step_of(lambda module: stage_3(module, max_reuse_distance=distance), microbatches=microbatches)
        assert sent == [microbatches * (3 * NBYTES - 4 * kept) * 3 // 4] * 4
    far = step_of(lambda module: stage_3(module, max_reuse_distance=all_but_first + 1), microbatches=microbatches)
    assert far == volume(2 * microbatches)


@pytest.mark.parametrize("prefetch", [True, False])
def test_prefetching_sends_nothing_more(prefetch):
    assert step_of(lambda module: stage_3(module, prefetch=prefetch)) == volume(3)


@pytest.mark.parametrize("stage, times, quiet", [(stage_1, 4, 2), (stage_2, 4, 2), (stage_3, 9, 7)])
def test_three_microbatches(stage, times, quiet):
    """Each reduces; stage 3 also gathers twice for each. All but the last in ``no_sync``: one reduction."""
    assert step_of(stage, microbatches=3) == volume(times)
    assert step_of(stage, microbatches=3, quiet=True) == volume(quiet)


def in_16_bits(reduce_dtype):
    return lambda module: stage_2(module.bfloat16(), reduce_dtype=reduce_dtype)


@pytest.mark.parametrize("reduce_dtype, times", [(torch.bfloat16, 1), (None, 1), (torch.float32, 1.5)], ids=str)
def test_reduced_in_fp32_16_bit_gradients_are_twice_as_many_bytes(reduce_dtype, times):
    """A gather in 16 bits, and a reduction in 32: 3 instead of 2."""
    assert step_of(in_16_bits(reduce_dtype), dtype=torch.bfloat16) == volume(times)


def test_clipping_sends_one_number():
    """An all-reduce of 4 bytes: 2 (p-1)/p of them a rank, on average."""
    assert sum(step_of(stage_2, clip=0.1)) == sum(volume(2)) + 4 * 2 * 3


def fully_sharded(module, **options):
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for layer in module:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    return Alone(fully_shard(module, mesh=mesh, **options), torch.optim.AdamW)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("reshard", [True, False])
def test_sends_what_torchs_own_sends(ranks, reshard):
    ours, theirs = (
        step_of(lambda module, make=make: make(module, reshard_after_forward=reshard), ranks)
        for make in (stage_3, fully_sharded)
    )
    assert ours == theirs
