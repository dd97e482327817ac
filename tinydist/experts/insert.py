"""Experts for a plain GPT: its MLPs are replaced by MoE layers, from outside; the model's code is unchanged.

    with_experts(GPT(config), experts=8, top_k=2)      every block
    with_experts(model, 8, 2, every=2)                 every second one, as in GShard and Switch

An expert's weights depend on ``seed``, its layer and its number alone: each rank makes its own, the same on any number
of ranks.
"""

from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from ..rules import count, flag, function, validate, whole
from .expert import Expert
from .layer import MoE
from .router import Router


@validate(model=nn.Module, experts=count, top_k=count, hidden=count, shared=whole, gated=flag, every=count, seed=whole)
@validate(group=dist.ProcessGroup, router=function)
def with_experts(
    model, experts=8, top_k=2, *, hidden=None, shared=0, gated=False, every=1, group=None, router=Router, seed=0,
    **options,
):  # fmt: skip
    """Replace, in place, the MLP of every ``every``-th block. Returns the model.

    hidden:   of an expert; None: 4 D, as the MLP has.
    shared:   shared experts of this width together, each of ``hidden``; 0: none.
    router:   ``Router`` or what is called like it: ``partial(Router, score="sigmoid", bias=True)``.
    options:  of ``MoE``.
    """
    if not hasattr(model, "blocks"):
        raise ValueError(f"with_experts: {type(model).__name__} has no blocks: make an MoE for each layer yourself")
    dim = model.config.dim
    hidden, std = hidden or 4 * dim, 0.02 / (2 * len(model.blocks)) ** 0.5
    for number, block in enumerate(model.blocks):
        if (number + 1) % every:
            continue
        dtype, place = next(block.mlp.parameters()).dtype, (seed, number)
        make = partial(made, dim, hidden, gated, std, place, dtype)
        gate = router(dim, experts, top_k, generator=drawing(*place, experts)).to(dtype)
        together = made(dim, shared * hidden, gated, std, place, dtype, experts + 1) if shared else None
        block.mlp = MoE(gate, make, shared=together, group=group, **options)
    return model


def made(dim, hidden, gated, std, place, dtype, number):
    """An expert of its layer."""
    return Expert(dim, hidden, gated=gated, std=std, generator=drawing(*place, number)).to(dtype)


def drawing(seed, layer, number):
    return torch.Generator().manual_seed((seed * 1009 + layer) * 100_003 + number)
