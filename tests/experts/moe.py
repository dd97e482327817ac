"""A small MoE layer whose weights depend on nothing but their names, and its training in one process."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tinydist.experts import Expert, MoE, Router

DIM, HIDDEN, EXPERTS, TOP_K = 6, 10, 8, 3


def drawn(seed):
    return torch.Generator().manual_seed(seed)


def expert(number, dtype=torch.float64, **options):
    made = Expert(DIM, HIDDEN, generator=drawn(number), **options).to(dtype)
    for parameter in made.parameters():
        parameter.data *= 20  # outputs of the size of inputs
    return made


def layer(group=None, across=None, *, dtype=torch.float64, top_k=TOP_K, experts=EXPERTS, make=None, skew=0, **options):
    """``skew``: how far the router prefers the first experts; with 1000 the others get nothing."""
    router = Router(DIM, experts, top_k, generator=drawn(100), bias=bool(skew)).to(dtype)
    router.weight.data *= 50
    if skew:
        router.bias[:] = torch.linspace(1, 0, experts) * skew
    make = make or (lambda number: expert(number, dtype, gated=True))
    return MoE(router, make, shared=expert(99, dtype), group=group, across=across, **options)


def on_nodes(nodes, **options):
    """The layer over all ranks: flat, or over as many nodes."""
    if nodes == 1:
        return layer(**options)
    mesh = init_device_mesh("cpu", (nodes, dist.get_world_size() // nodes), mesh_dim_names=("across", "inside"))
    return layer(mesh.get_group("inside"), mesh.get_group("across"), **options)


def tokens(dtype=torch.float64, rows=8):
    return torch.randn(rows, 5, DIM, generator=drawn(1), dtype=torch.float64).to(dtype)


def own(x):
    return x.chunk(dist.get_world_size())[dist.get_rank()].clone()


def passed(forward, x):
    """Output and gradient of x, of a loss that treats each number differently. Gradients of parameters stay."""
    x.requires_grad_()
    y = forward(x)
    (y * torch.linspace(1, 2, DIM, dtype=y.dtype)).sum().backward()
    return y.detach(), x.grad
