"""torch's pipeline schedules, unmodified, on simulated ranks: the gradients of one process."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from sampled import sampled
from tiny_training import WIDTH, assert_every_rank_has
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from unobserved import launch


def blocks(count):
    """A model of ``count`` stages, no two of which have the same weights."""
    torch.manual_seed(5)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count)]


def batch(rows):
    generator = torch.Generator().manual_seed(6)
    return torch.randn(rows, WIDTH, generator=generator), torch.randn(rows, WIDTH, generator=generator)


def gradients(stages):
    """Stage -> gradients of its parameters."""
    return {index: [parameter.grad for parameter in block.parameters()] for index, block in stages.items()}


def in_one_process(stages, rows):
    model = nn.Sequential(*blocks(stages))
    inputs, targets = batch(rows)
    loss = F.mse_loss(model(inputs), targets)
    loss.backward()
    return gradients(dict(enumerate(model))), loss.detach()


def in_a_loop(rank, ranks, count):
    return range(rank, count, ranks)


def in_a_v(rank, ranks, count):
    """Down the ranks, and up again: the last rank has neighbours among stages, the first both ends."""
    return [rank, count - 1 - rank]


def pipelined(schedule, stages_of, count, microbatches):
    """A rank's gradients, and the loss on the rank of the last stage."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mine = {index: blocks(count)[index] for index in stages_of(rank, ranks, count)}
    device = torch.device("cpu")
    stages = [PipelineStage(block, index, count, device) for index, block in mine.items()]
    losses = []
    pipeline = schedule(stages if count > ranks else stages[0], microbatches, loss_fn=F.mse_loss)
    inputs, targets = batch(2 * microbatches)
    pipeline.step(
        *([inputs] if 0 in mine else []),
        **({"target": targets, "losses": losses} if count - 1 in mine else {}),
    )
    return gradients(mine), torch.stack(losses).mean().detach() if losses else None


def assert_equals_one_process(schedule, stages_of, ranks, count, microbatches, order="fifo", seed=0):
    run = launch(pipelined, ranks, schedule, stages_of, count, microbatches, schedule=order, seed=seed)
    found, losses = zip(*run.results)
    expected, expected_loss = in_one_process(count, 2 * microbatches)
    together = {index: grads for mine in found for index, grads in mine.items()}
    assert_every_rank_has(expected, [together])
    assert_every_rank_has(expected_loss, [loss for loss in losses if loss is not None])


ONE_STAGE_EACH = [ScheduleGPipe, Schedule1F1B]
IN_A_LOOP = [ScheduleInterleaved1F1B, ScheduleLoopedBFS, ScheduleInterleavedZeroBubble]
IN_A_V = [ScheduleZBVZeroBubble, ScheduleDualPipeV]


def name(schedule):
    return schedule.__name__.removeprefix("Schedule")


@pytest.mark.parametrize("ranks", sampled((1, 4), (1, 2, 4, 8)))
@pytest.mark.parametrize("schedule", ONE_STAGE_EACH, ids=name)
def test_one_stage_on_each_rank(schedule, ranks):
    assert_equals_one_process(schedule, in_a_loop, ranks, ranks, microbatches=2 * ranks)


@pytest.mark.parametrize("ranks, stages", sampled([(4, 8), (2, 6)], [(2, 4), (4, 8), (2, 6)]))
@pytest.mark.parametrize("schedule", IN_A_LOOP, ids=name)
def test_stages_in_a_loop(schedule, ranks, stages):
    assert_equals_one_process(schedule, in_a_loop, ranks, stages, microbatches=8)


@pytest.mark.parametrize("ranks", sampled([4], [2, 4, 8]))
@pytest.mark.parametrize("schedule", IN_A_V, ids=name)
def test_stages_in_a_v(schedule, ranks):
    """Here a rank posts several receives from one peer, for different stages, and waits for them in another order.

    The regression test of matching messages by the order of posts: matched by the order of waits, tensors of equal
    shape change places and the gradients are wrong without an error.
    """
    assert_equals_one_process(schedule, in_a_v, ranks, 2 * ranks, microbatches=2 * ranks)


@pytest.mark.parametrize("seed", sampled([0], range(3)))
@pytest.mark.parametrize(
    "schedule, stages_of",
    [(ScheduleInterleaved1F1B, in_a_loop), (ScheduleZBVZeroBubble, in_a_v)],
    ids=["Interleaved1F1B", "ZBV"],
)
def test_shuffled_schedules(schedule, stages_of, seed):
    assert_equals_one_process(schedule, stages_of, 4, 8, microbatches=8, order="shuffle", seed=seed)
