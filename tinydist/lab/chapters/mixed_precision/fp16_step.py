"""A step of training in fp16 with master weights, and the same in fp32 in one process: what each should do.

An answer is run for some steps on ranks that have their own microbatches. What it leaves is compared with one process
in fp32 that has all of them.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from ...ranks import Case

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

    @cached_property
    def reference(self):
        """(weights, norm of the gradient before clipping) after each step."""
        return reference(self)


def case_of(about, plan):
    return Case(plan.ranks, lambda rank: (plan,), about, expected=plan)


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
    """On each rank, after each step: what was returned, the model's weights, the masters."""
    model, rank = build(torch.float16), dist.get_rank()
    masters = [p.detach().float() for p in model.parameters()]
    history = []
    for step in range(plan.steps):
        returned = answer(model, masters, data(plan, step, rank), plan.scale, plan.lr, plan.max_norm)
        history.append((returned, copies(model.parameters()), copies(masters)))
    return history


def copies(tensors):
    return [each.detach().clone() for each in tensors]


def reference(plan):
    """In fp32, and in one process."""
    model, history = build(), []
    for step in range(plan.steps):
        norm = 0.0
        if not any(overflow[0] == step for overflow in plan.overflows):
            everything = [each for rank in range(plan.ranks) for each in data(plan, step, rank)]
            loss = sum(F.mse_loss(model(x.float()), y) for x, y in everything) / len(everything)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            norm = torch.linalg.vector_norm(flat(gradients)).item()
            with torch.no_grad():
                for p, gradient in zip(model.parameters(), gradients):
                    p -= plan.lr * min(1.0, plan.max_norm / norm) * gradient
        history.append((copies(model.parameters()), norm))
    return history


def flat(tensors):
    return torch.cat([each.detach().flatten().float() for each in tensors])
