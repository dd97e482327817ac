"""What the exercises of this chapter share: their order, their notebook's beginning, and what they are tried on."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Case, Wrong
from tinydist.torch_internals import unobserved

ORDER = [
    "left_reduce_scatter",
    "broadcast_in_parts",
    "mended_all_reduce",
    "all_to_all_uneven",
    "mean_of_all",
    "gather_columns",
]

INTRODUCTION = """\
# Exercises: collectives from messages

[Notebook 02](../notebooks/02_collectives.ipynb) goes before these. In the first four you build collectives from \
messages alone: `send`, `recv`, `isend`, `irecv` and `batch_isend_irecv` of `torch.distributed`. In the last two you \
take the collectives of `torch.distributed`, and write their backward. Six exercises, about two and a half hours.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function runs on simulated \
ranks, in worlds of several sizes, and is judged on three axes: the values, the bytes sent, the bytes held; and on the \
virtual time. The first property that does not hold is explained.

**Hint.** `hint(left_reduce_scatter)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check left_reduce_scatter` checks \
(`check 02_collectives`: all six), `hint left_reduce_scatter` gives a hint, and `reset left_reduce_scatter` puts the \
stub back.

n is the bytes of one rank's tensor, p the number of ranks. How long a message takes is the subject of chapter 03: \
here times are said in steps. Look at your own run whenever you like: `tinydist.launch(my_program, 4)`."""

IMPORTS = """\
import torch
import torch.distributed as dist"""

BY_HAND = "build it yourself, from messages: send, recv, isend, irecv, batch_isend_irecv"
SOLVED = ("tinydist.collectives",)
DIFFERENTIABLE = (  # of the exercises on backward
    "no collective that has a backward of its own",
    "write an autograd.Function that calls the collectives of torch.distributed",
    {
        "tinydist.collectives": "tinydist.collectives",
        "torch.distributed.nn": "torch.distributed.nn",
        "torch.distributed._functional_collectives": "torch.distributed._functional_collectives",
        "torch.distributed.tensor": "torch's DTensor",
    },
)
LARGE = 1 << 12  # numbers, where bytes held and time are judged
FLOAT = 4  # bytes


def numbers(rank, shape, dtype=torch.float32):
    """They differ by rank and position, and are the same in every check."""
    generator = torch.Generator().manual_seed(1000 + rank)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=dtype)
    return torch.randint(-100, 100, shape, generator=generator, dtype=dtype)


def summed(ranks, *shape, dtype=torch.float32, measured=False, **how):
    """A world where each rank has a tensor of its own."""
    each = f"{' x '.join(map(str, shape))} number{'s' * (shape != (1,))} each"
    kind = "" if dtype == torch.float32 else f" of {str(dtype).removeprefix('torch.')}"
    order = ", in another order of events" if how else ""
    return Case(ranks, lambda rank: (numbers(rank, shape, dtype),), each + kind + order, measured, how=how)


def sums():
    """Even parts, uneven ones, fewer numbers than ranks; two dims, other dtypes; large ones."""
    for ranks, count in [(2, 8), (2, 9), (3, 12), (3, 14), (3, 2), (4, 18), (8, 36), (8, 7), (1, 4)]:
        yield summed(ranks, count)
    yield summed(3, 5, 3, dtype=torch.float64)
    yield summed(4, 9, dtype=torch.int64)
    for seed in (1, 2):
        yield summed(4, 10, schedule="shuffle", seed=seed)
    for ranks in (4, 8):
        yield summed(ranks, LARGE, measured=True)


def largest_part(case):
    """Bytes."""
    tensor = case.arguments(0)[0]
    return tensor.tensor_split(case.ranks)[0].nbytes


def uneven(case):
    """Its parts differ in size: who sends how much depends on where each part starts."""
    return len(case.arguments(0)[0]) % case.ranks > 0


def leaf(tensor):
    return tensor.clone().requires_grad_()


def noted(tensor):
    """Its numbers, where no ledger counts them."""
    with unobserved():
        return tensor.detach().clone()


def result_of(answer, x, shared, shape):
    """A tensor of this shape, through which x gets a gradient."""
    result = answer(x, shared)
    where = f"on rank {dist.get_rank()}"
    if not isinstance(result, torch.Tensor) or list(result.shape) != shape:
        came = list(result.shape) if isinstance(result, torch.Tensor) else type(result).__name__
        raise Wrong(f"{where} it returned {came}, where a tensor of shape {shape} is right")
    if not result.requires_grad:
        raise Wrong(
            f"what it returned {where} has no backward, so x gets no gradient. A collective has none of its own: write "
            "an autograd.Function, and return the result of its apply"
        )
    return result
