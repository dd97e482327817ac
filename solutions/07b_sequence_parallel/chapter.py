"""What the exercises of this chapter share: their order, their notebook's beginning, gradients."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Wrong
from tinydist.torch_internals import unobserved

ORDER = ["kept_by_block", "most_gpus", "which_way", "mended_copies"]

INTRODUCTION = """\
# Exercises: sequence parallelism, and how many GPUs pay

[Notebook 07b](../notebooks/07b_sequence_parallel.ipynb) goes before these. You count what blocks keep for backward \
that the notebook did not have, choose the number of GPUs for a layer on a real cluster, and the kind of parallelism \
that sends least; these three are arithmetic, without ranks and tensors. In the last one you find bugs in a training \
step with sequence parallelism. Four exercises, about 80 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function is called with several \
models and clusters, also with some that nobody has built, or runs on simulated ranks. The first property that does \
not hold is explained.

**Hint.** `hint(kept_by_block)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check kept_by_block` checks, `hint \
kept_by_block` gives a hint, and `reset kept_by_block` puts the stub back.

Units are bytes, seconds and bytes per second, without kilo, mega or giga. t is the number of ranks that work on the \
same tokens."""

IMPORTS = """\
import torch
import torch.distributed as dist"""

BY_HAND = "here it is arithmetic, and yours"
FORMULAS = ("tinydist.hardware", "tinydist.planner", "tinydist.tensor_parallel")


def numbers(*shape, seed, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def leaf(tensor):
    return tensor.clone().requires_grad_()


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
                "is cut"
            )
    return {f"the gradient of {name}": noted(tensor.grad) for name, tensor in leaves.items()}
