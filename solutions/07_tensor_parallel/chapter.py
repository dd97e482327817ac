"""What the exercises of this chapter share: their order, their notebook's beginning, groups, gradients."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Own, Waits, Wrong
from tinydist.torch_internals import unobserved

ORDER = ["row_linear", "f_and_g", "vocabulary_loss", "copied_heads"]

INTRODUCTION = """\
# Exercises: tensor parallel

[Notebook 07](../notebooks/07_tensor_parallel.ipynb) goes before these. You write what every tensor parallel layer \
stands on: a product by rows whose bias is added once, the two operators at the ends of an MLP with a gate, for a \
group of ranks and with an all-reduce that is hidden, a loss of logits that no rank has all of, and heads of keys \
that are on several ranks. Use the collectives of `torch.distributed`, but neither `tinydist.tensor_parallel` nor \
collectives that have a backward of their own. A collective on a tensor that has a graph is an error here: autograd \
does not see it. Four exercises, about an hour and three quarters.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function runs on simulated \
ranks, in worlds of several sizes, and is judged on the values, on all gradients, and on the bytes sent and held. The \
first property that does not hold is explained.

**Hint.** `hint(row_linear)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check row_linear` checks, `hint \
row_linear` gives a hint, and `reset row_linear` puts the stub back.

t is the number of ranks of a group that work on the same tokens. All of them compute the same loss."""

IMPORTS = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F"""

SOLVED = {
    "tinydist.tensor_parallel": "tinydist.tensor_parallel",
    "tinydist.collectives.autograd": "tinydist.collectives.autograd",
    "torch.distributed.nn": "torch.distributed.nn",
    "torch.distributed.tensor": "torch's DTensor",
}
WAITS = Waits("whatever is started is waited for")
BY_HAND = [  # the first targets of programs
    WAITS,
    Own(
        "neither tinydist.tensor_parallel nor collectives that have a backward of their own",
        "write an autograd.Function that calls the collectives of torch.distributed",
        SOLVED,
    ),
]


def numbers(*shape, seed, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def leaf(tensor):
    return tensor.clone().requires_grad_()


def own_group(size):
    """Ranks are divided into groups of ``size``, in a row: (this rank's group, its number, the place in it)."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group(list(range(begin, begin + size))) for begin in range(0, ranks, size)]
    return groups[rank // size], rank // size, rank % size


def noted(tensor):
    """Its numbers, where no ledger counts them."""
    with unobserved():
        return tensor.detach().clone()


def gradients(leaves):
    """Of each of ``leaves``, name -> tensor, after backward."""
    for name, tensor in leaves.items():
        if tensor.grad is None:
            raise Wrong(
                f"on rank {dist.get_rank()} {name} has no gradient: it is not used, or the way from the loss to it "
                "is cut. A collective has no backward of its own: an autograd.Function says what it is"
            )
    return {f"the gradient of {name}": noted(tensor.grad) for name, tensor in leaves.items()}


def part_of_a_graph(y, shape, what):
    if not isinstance(y, torch.Tensor) or list(y.shape) != shape:
        came = list(y.shape) if isinstance(y, torch.Tensor) else type(y).__name__
        raise Wrong(f"on rank {dist.get_rank()} {what} returned {came}, where a tensor of shape {shape} is right")
    if not y.requires_grad:
        raise Wrong(
            f"what {what} returned on rank {dist.get_rank()} has no backward, so nothing before it gets a gradient. Is "
            "it the result of a Function's apply?"
        )
    return y
