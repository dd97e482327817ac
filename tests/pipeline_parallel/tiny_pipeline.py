"""A model of any number of stages, its batch, its step in one process, and the same in a pipeline."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from tiny_training import assert_every_rank_has
from torch import nn

import tinydist
from tinydist.pipeline_parallel import Worker

WIDTH, ROWS = 6, 2  # ROWS of a microbatch


def blocks(count):
    """Stages, no two of which have the same weights."""
    torch.manual_seed(5)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)) for _ in range(count)]


def batch(microbatches):
    generator = torch.Generator().manual_seed(6)
    return [torch.randn(ROWS * microbatches, WIDTH, generator=generator) for _ in range(2)]


def gradients(stages):
    """Stage -> gradients of its parameters."""
    return {index: [parameter.grad for parameter in block.parameters()] for index, block in stages.items()}


def in_one_process(stages, microbatches):
    model = nn.Sequential(*blocks(stages))
    inputs, targets = batch(microbatches)
    loss = F.mse_loss(model(inputs), targets)
    loss.backward()
    return gradients(dict(enumerate(model))), loss.detach()


def step(schedule, **options):
    """What a rank has after a step: its gradients, and the loss where the last stage is."""
    rank = dist.get_rank(options.get("group"))
    everything = blocks(schedule.stages)
    mine = {stage: everything[stage] for stage in schedule.stages_of(rank)}
    worker = Worker(schedule, mine, torch.empty(ROWS, WIDTH, device="meta"), F.mse_loss, **options)
    loss = worker.step(*batch(schedule.microbatches))
    return gradients(mine), loss


def assert_equals_one_process(schedule, backend="simulated", observe=False, **options):
    launched = {"schedule": options.pop("schedule_order", "fifo"), "seed": options.pop("seed", 0)}
    if backend != "simulated":
        launched["timeout"] = 60
    run = tinydist.launch(
        lambda: step(schedule, **options), schedule.ranks, backend=backend, observe=observe, **launched
    )
    found, losses = zip(*run.results)
    expected, loss = in_one_process(schedule.stages, schedule.microbatches)
    together = {stage: grads for mine in found for stage, grads in mine.items()}
    assert_every_rank_has(expected, [together])
    assert_every_rank_has(loss, [each for each in losses if each is not None])
    assert sum(each is not None for each in losses) == 1
    return run
