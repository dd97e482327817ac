"""A sequence on one process, and sharded over ranks: outputs and gradients."""

from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import tinydist
from tinydist.attention import attention
from tinydist.context_parallel import (
    gather_attention,
    hybrid_attention,
    ring_attention,
    shard_sequence,
    ulysses_attention,
    unshard_sequence,
)

WAYS = {"ring": ring_attention, "gather": gather_attention, "ulysses": ulysses_attention}


def inputs(T, heads=24, groups=24, dim=4, batch=2, dtype=torch.float64):
    generator = torch.Generator().manual_seed(T)
    shapes = [(batch, each, T, dim) for each in (heads, groups, groups)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def weights(out):
    """Of a loss that treats each number differently."""
    return torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out).to(out.dtype)


def alone(tensors, **options):
    """The output, and the gradients of q, k and v."""
    out = attention(*tensors, **options)
    return [out.detach(), *torch.autograd.grad(out, tensors, weights(out))]


def sharded(way, tensors, causal=True, balanced=True, shard=None, unshard=None, **groups):
    """The same on a rank, put together again."""
    T = tensors[0].shape[2]
    shard = shard or partial(shard_sequence, dim=2, balanced=balanced)
    unshard = unshard or partial(unshard_sequence, dim=2, balanced=balanced, tokens=T)
    mine = [shard(each.detach()).requires_grad_() for each in tensors]
    out = way(*mine, causal=causal, balanced=balanced, tokens=T, **groups)
    own = shard(weights(torch.empty_like(tensors[0])))
    return [unshard(each) for each in (out.detach(), *torch.autograd.grad(out, mine, own))]


def hybrid(tensors, across, causal=True, balanced=True):
    """On ranks of which ``across`` are a ring."""
    mesh = init_device_mesh("cpu", (across, dist.get_world_size() // across), mesh_dim_names=("ring", "ulysses"))
    group, within = mesh.get_group("ring"), mesh.get_group("ulysses")
    T = tensors[0].shape[2]

    def shard(x):
        return shard_sequence(shard_sequence(x, group, 2, balanced), within, 2, balanced=False)

    def unshard(x):
        mine = len(shard_sequence(torch.arange(T), group, 0, balanced))
        return unshard_sequence(unshard_sequence(x, within, 2, False, tokens=mine), group, 2, balanced, tokens=T)

    return sharded(hybrid_attention, tensors, causal, balanced, shard, unshard, group=group, within=within)


def on_ranks(program, ranks, *arguments, **options):
    return tinydist.launch(partial(program, **options), ranks, *arguments, observe=False).results
