"""1F1B beside torch's own schedule and stages: the loss, and seconds a step. Each rank has a part of the layers."""

import statistics

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from tinydist.model import GPT
from tinydist.pipeline_parallel import Worker, make_schedule
from tinydist.pipeline_parallel.stages import cut, evenly, layers_of

from .training import FULL, now


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def my_stage(config, device):
    torch.manual_seed(0)
    gpt = GPT(config)
    gpt.head.weight = nn.Parameter(gpt.head.weight.detach().clone())  # the first and the last rank share nothing
    layers = layers_of(gpt)
    return cut(layers, evenly(layers, dist.get_world_size()))[dist.get_rank()].to(device)


def by_tinydist(stage, config, device, microbatches):
    ranks, rank = dist.get_world_size(), dist.get_rank()
    between = torch.empty(1, config.context, config.dim, device="meta")
    upward = dist.new_group(range(ranks))
    worker = Worker(make_schedule("1F1B", ranks, microbatches), {rank: stage}, between, loss_of, grad_group=upward)
    return worker.step


def by_torch(stage, config, device, microbatches):
    ranks, rank = dist.get_world_size(), dist.get_rank()
    place = torch.device(device, rank) if device == "cuda" else torch.device(device)
    inside = PipelineStage(stage, rank, ranks, place)
    schedule = Schedule1F1B(inside, microbatches, loss_fn=loss_of)

    def step(tokens, targets):
        losses = []
        schedule.step(*([] if rank else [tokens]), target=targets if rank == ranks - 1 else None, losses=losses)
        return torch.stack(losses).mean() if losses else None

    return step


def trained(make, config, device, steps):
    """The losses of the steps, and the median of their seconds."""
    microbatches = 2 * dist.get_world_size()
    stage = my_stage(config, device)
    step, optimizer = make(stage, config, device, microbatches), torch.optim.SGD(stage.parameters(), lr=0.1)
    sequence = torch.arange(microbatches * (config.context + 1), device=device).view(microbatches, -1)
    tokens, targets = sequence[:, :-1] % config.vocab_size, sequence[:, 1:] % config.vocab_size
    losses, seconds = [], []
    for _ in range(steps):
        dist.barrier()
        began = now(device)
        optimizer.zero_grad()
        loss = step(tokens, targets)
        optimizer.step()
        seconds.append(now(device) - began)
        losses.append(None if loss is None else loss.item())
    return losses, statistics.median(seconds[1:] or seconds)


def compare(machine):
    rows, losses = [], {}
    for by, make in (("tinydist", by_tinydist), ("torch", by_torch)):
        run = machine.launch(trained, make, machine.config, machine.device, machine.steps)
        losses[by], seconds = run.results[-1]
        rows.append({"by": by, "last loss": losses[by][-1], "seconds a step": seconds})
    torch.testing.assert_close(torch.tensor(losses["tinydist"]), torch.tensor(losses["torch"]), rtol=FULL, atol=0)
    return rows
