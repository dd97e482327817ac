"""A small GPT on real text: its training in one process, in plain torch, and by a plan on ranks."""

from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import nn

import tinydist
from tinydist.model import GPT, GPTConfig, batch
from tinydist.precision import MasterWeights
from tinydist.training import parallelize
from tinydist.training.mesh import data_rank, place_in

STEPS, ROWS, MAX_NORM = 3, 48, 1.0  # rows divide by 1, 2, 3, 4, 6 and 8, and then by 2 microbatches
ADAM = {"lr": 1e-2, "weight_decay": 0.1}


def text(step):
    return batch(step, ROWS, context=24)  # on up to 8 tensor ranks


def model(layers=2, heads=8, dim=16, dropout=0.0):
    torch.manual_seed(0)
    return uneven(GPT(GPTConfig(layers=layers, heads=heads, dim=dim, context=24, dropout=dropout)))


def uneven(module):
    """Biases and norms count, too: a model that has just been made has none of the former."""
    for parameter in module.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, mean=0.5, std=0.3)
    return module


def decayed(module):
    """Groups as they are usual: what is no matrix does not decay."""
    parameters = list(module.parameters())
    others = {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}
    return [{"params": [p for p in parameters if p.ndim >= 2]}, others]


@cache
def alone(make=model, dtype=torch.float32, steps=STEPS):
    """Losses and norms in plain torch. In 16 bits: with master weights, and a loss of fp32 logits."""
    module = make().to(dtype)
    optimizer = (torch.optim.AdamW if dtype is torch.float32 else MasterWeights)(decayed(module), **ADAM)
    found = []
    for step in range(steps):
        tokens, targets = text(step)
        loss = F.cross_entropy(module(tokens).flatten(0, 1).float(), targets.flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(module.parameters(), MAX_NORM)
        optimizer.step()
        optimizer.zero_grad()
        found.append((loss.item(), norm.item()))
    return found


def rows_of(engine, tensors):
    """Of a global batch, those of this data rank."""
    rank = data_rank(engine.plan, place_in(engine.mesh))
    return [tensor.chunk(engine.plan.dp)[rank] for tensor in tensors]


def made(plan, make=model, mesh=None):
    module = make()
    return parallelize(module, plan, param_groups=decayed(module), mesh=mesh, **ADAM)


def program(plan, make=model, steps=STEPS):
    engine = made(plan, make)
    return [engine.step(*rows_of(engine, text(step)))[:2] for step in range(steps)]


def on_ranks(plan, make=model, steps=STEPS, **how):
    """The same on every rank: losses and norms."""
    how.setdefault("observe", False)
    first, *others = tinydist.launch(program, plan.ranks, plan, make, steps, **how).results
    assert all(each == first for each in others)
    return first


def distance(found, expected):
    """Of losses, and of norms, the largest."""
    return [max(abs(a - b) for a, b in zip(*each, strict=True)) for each in zip(zip(*found), zip(*expected))]


@cache
def deep(layers):
    return partial(model, layers)


def assert_equals_one_process(plan, make=model, **how):
    assert max(distance(on_ranks(plan, make, **how), alone(make))) <= 1e-5
