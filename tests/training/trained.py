"""A small GPT on real text: its training in one process, in plain torch, and by a plan on ranks."""

from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import nn

import tinydist
from tinydist.model import GPT, GPTConfig, batch
from tinydist.precision import MasterWeights
from tinydist.training import parallelize

STEPS, ROWS, MAX_NORM = 3, 16, 1.0
ADAM = {"lr": 1e-2, "weight_decay": 0.1}


@cache
def config(layers=2, dropout=0.0):
    return GPTConfig(layers=layers, heads=8, dim=16, context=8, dropout=dropout)


def text(step, rows=ROWS):
    return batch(step, rows, context=8)


def model(layers=2, **options):
    """Biases and norms count, too: a GPT that has just been made has none of the former."""
    torch.manual_seed(0)
    made = GPT(config(layers, **options))
    for parameter in made.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, mean=0.5, std=0.3)
    return made


def decayed(module):
    """Groups as they are usual: what is no matrix does not decay."""
    parameters = list(module.parameters())
    others = {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}
    return [{"params": [p for p in parameters if p.ndim >= 2]}, others]


@cache
def alone(layers=2, make=model, dtype=torch.float32, steps=STEPS):
    """Losses and norms in plain torch. In 16 bits: with master weights, and a loss of fp32 logits."""
    module = make(layers).to(dtype)
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
    _, replicate, shard, _ = engine.mesh.get_coordinate()
    return [tensor.chunk(engine.plan.dp)[replicate * engine.plan.shard + shard] for tensor in tensors]


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


def deep(layers, make=model):
    return partial(make, layers)
