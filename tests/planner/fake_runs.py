"""Steps of a GPT by a plan, on fake ranks: what the planner predicts is held against what they hold, and take."""

import gc
from dataclasses import fields

import torch

import tinydist
from tinydist.model import GPT, GPTConfig
from tinydist.planner import Model
from tinydist.planner import Plan as Planned
from tinydist.training import Plan, parallelize


def model_of(config):
    sizes = config.layers, config.dim, config.heads, config.vocab_size, config.context
    return Model("a GPT", *sizes, dropout=config.dropout)


def planned(config, b, **choices):
    """As the planner has it, of the kernels of tinydist.model: with dropout, attention writes its weights down."""
    return Planned(microbatch=b, flash=not config.dropout, fused=False, **choices)


def two_steps(config, plan, rows):
    torch.set_default_dtype(torch.float32)
    engine = parallelize(GPT(config), plan, lr=1e-3)
    gc.collect()
    tokens = torch.zeros(rows, config.context, dtype=torch.long)
    for step in range(2):
        tinydist.mark(f"step {step}")
        engine.step(tokens, tokens)
    tinydist.mark("over")


def run(config, plan, cluster=None):
    """Of a planner's plan: the second step counts."""
    names = {field.name for field in fields(Plan)} & {field.name for field in fields(plan)}
    own = Plan(**{name: getattr(plan, name) for name in names})
    rows = plan.microbatches * plan.microbatch
    only = [0] if plan.pp == 1 else None
    options = dict(fake=True, only=only, backend="simulated", cluster=cluster)
    return tinydist.launch(two_steps, plan.ranks, config, own, rows, **options)


def held(found, plan, rank):
    """Bytes at the peak of the second step, of the first rank of a stage."""
    return found.memory[rank * plan.dp * plan.tp].peak_between("step 1", "over")


SMALL = GPTConfig(vocab_size=2048, context=128, layers=2, heads=4, dim=256)
DROPPED = GPTConfig(vocab_size=2048, context=128, layers=2, heads=4, dim=256, dropout=0.1)
