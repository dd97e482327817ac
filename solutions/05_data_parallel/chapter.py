"""What the exercises of this chapter share: their order, their notebook's beginning, the parts of a result, and small
models to train."""

import torch
from torch import nn

ORDER = ["average_gradients", "predict_traffic", "best_buckets", "mended_training", "overlap"]

INTRODUCTION = """\
# Exercises: data parallel

[Notebook 05](../notebooks/05_data_parallel.ipynb) goes before these. You average gradients of unequal batches, \
predict what DP and DDP send, cut a model into the best buckets, mend a training loop, and send gradients while \
backward runs, in place, though some are missing. Use any collective of `torch.distributed`, but neither \
`tinydist.data_parallel` nor torch's `DistributedDataParallel`. Tensors are in fp32 unless a task says otherwise, on \
1 to 8 simulated ranks. Five exercises, about 115 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function runs on simulated \
ranks, in worlds of several sizes, and is judged on the values, on what is sent, on what is held, and on the virtual \
time, where they are the point. The first property that does not hold is explained.

**Hint.** `hint(average_gradients)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check average_gradients` checks,\
 `hint average_gradients` gives a hint, and `reset average_gradients` puts the stub back.

S is the bytes of all gradients, p the number of ranks. Look at your own run whenever you like: \
`tinydist.launch(my_program, 4)`."""

IMPORTS = """\
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F"""

SOLVED = {
    "tinydist.data_parallel": "tinydist.data_parallel",
    "torch.nn.parallel": "torch's DistributedDataParallel",
}
WIDTH = ROWS = 8
LAYER = WIDTH * WIDTH * 4  # bytes


class Chain(nn.Sequential):
    """Layers, one after another, in buckets of so many: those that are ready first are in the first bucket."""

    def __init__(self, counts, rank):
        super().__init__(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(sum(counts))])
        ready = reversed(list(self.parameters()))
        self.buckets = [[next(ready) for _ in range(count)] for count in counts]


class FirstIsLast(Chain):
    """The first bucket is full last: until then none can start."""

    def __init__(self, counts, rank):
        super().__init__(counts, rank)
        self.buckets.reverse()


class SecondIsFirst(Chain):
    """The first bucket is full after the second, and before the last layer: then two can start at once."""

    def __init__(self, counts, rank):
        super().__init__(counts, rank)
        self.buckets[:2] = self.buckets[1::-1]


class Skips(Chain):
    """Leaves a layer out in each step: ``left_out`` has its number, or None."""

    def __init__(self, counts, left_out):
        super().__init__(counts, None)
        self.left_out = list(left_out)

    def forward(self, x):
        left_out = self.left_out.pop(0)
        for number, layer in enumerate(self):
            if number != left_out:
                x = layer(x)
        return x


class Branches(nn.Module):
    """Two layers side by side, in another order on odd ranks: so their gradients are ready in another order."""

    def __init__(self, counts, rank):
        super().__init__()
        self.below, self.one, self.other = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.order = [self.other, self.one] if rank % 2 else [self.one, self.other]
        self.buckets = [list(layer.parameters()) for layer in (self.one, self.other, self.below)]

    def forward(self, x):
        x = torch.tanh(self.below(x))
        return sum(torch.tanh(layer(x)) for layer in self.order)


def build(kind, counts, rank):
    with torch.random.fork_rng(devices=[]):  # a check leaves the reader's random numbers as they are
        torch.manual_seed(0)
        return kind(counts, rank)


def backward(model, rank, step, rows=ROWS):
    """Gradients that are there before it are made zero in place."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    model.zero_grad(set_to_none=False)
    model(torch.randn(rows, WIDTH, generator=generator).to(next(model.parameters()))).pow(2).mean().backward()


def gradients(model):
    return {f"{name}.grad": None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
