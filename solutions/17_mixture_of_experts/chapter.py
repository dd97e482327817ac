"""What the exercises of this chapter share: their order, their notebook's beginning, numbers, gradients."""

import torch

from tinydist.lab.author import Own, Wrong
from tinydist.torch_internals import unobserved

ORDER = ["route_with_capacity", "dispatch_and_combine", "balance_gradient", "mended_experts", "place_experts"]

INTRODUCTION = """\
# Exercises: mixture of experts

[Notebook 17](../notebooks/17_mixture_of_experts.ipynb) goes before these. You write a router with a capacity that \
keeps first choices first, dispatch and combine for experts that are on any ranks, the gradient of the balance loss \
over all ranks, and a placement of experts on two nodes; and you find three bugs in a training step. Five exercises, \
about two and a quarter hours.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Some run on simulated ranks, in \
worlds of several sizes, and are judged on values and on the bytes sent. The first property that does not hold is \
explained.

**Hint.** `hint(route_with_capacity)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check route_with_capacity` checks, \
`hint route_with_capacity` gives a hint, and `reset route_with_capacity` puts the stub back.

N is the number of tokens (of a rank, where there are ranks), D their width, E the number of experts, and k how many \
a token has. Use `torch` and the collectives of `torch.distributed`, and not `tinydist.experts`."""

IMPORTS = """\
import math
from itertools import combinations

import torch
import torch.distributed as dist"""

SOLVED = ("tinydist.experts",)
BY_HAND = Own("nothing of tinydist.experts", "build it from torch and torch.distributed", SOLVED)


def numbers(*shape, seed, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def noted(tensor):
    """Its numbers, where no ledger counts them."""
    with unobserved():
        return tensor.detach().clone()


def gradients(leaves):
    """Of each of ``leaves``, name -> tensor, after backward."""
    for name, tensor in leaves.items():
        if tensor.grad is None:
            raise Wrong(f"{name} has no gradient: it is not used, or the way from the loss to it is cut")
    return {f"the gradient of {name}": noted(tensor.grad) for name, tensor in leaves.items()}
