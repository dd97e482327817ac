"""Steps of training in fp16, on ranks that have their own microbatches."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from tinydist.lab.author import Wrong, kind

ROWS, WIDTH = 4, 4
HUGE = 3e4  # a target that makes the gradients overflow in fp16, at a scale of 2^8 or more


@dataclass(frozen=True)
class Plan:
    ranks: int = 1
    microbatches: int = 1
    steps: int = 1
    scale: float = 1.0
    lr: float = 0.25
    max_norm: float = 1e4  # the gradient is shorter
    size: float = 1.0  # of inputs and targets
    overflows: tuple = ()  # (step, rank): one of its microbatches overflows


def build(dtype=torch.float32):
    """Weights that fp16 has, in either precision."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, 2, bias=False))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator).half())
    return model.to(dtype)


def data(plan, step, rank):
    """The microbatches of a rank, in fp16 inputs and fp32 targets."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    found = []
    for place in range(plan.microbatches):
        x = plan.size * torch.randn(ROWS, WIDTH, generator=generator)
        y = plan.size * torch.randn(ROWS, 2, generator=generator)
        if (step, rank) in plan.overflows and place == 0:
            y[1, 1] = HUGE
        found.append((x.half(), y))
    return found


def train(answer, plan):
    """On each rank, before the first step and after each: was it made, the model's weights, the masters."""
    model, rank = build(torch.float16), dist.get_rank()
    masters = [p.detach().float() for p in model.parameters()]
    history = [(True, flat(model.parameters()), flat(masters))]
    for step in range(plan.steps):
        made = answer(model, masters, data(plan, step, rank), plan.scale, plan.lr, plan.max_norm)
        made = bool(made) if isinstance(made, torch.Tensor) and made.numel() == 1 else made
        if not isinstance(made, bool):
            raise Wrong(f"in step {step + 1} rank {rank} returned {kind(made)}, where True or False is right")
        if not made and not plan.overflows:
            raise Wrong(f"in step {step + 1} nothing overflows, and it returned False on rank {rank}: make the step")
        history.append((made, flat(model.parameters()), flat(masters)))
    return history


def flat(tensors):
    return torch.cat([each.detach().flatten().float() for each in tensors])
