"""What the exercises of this chapter share: their order, their notebook's beginning."""

import torch

ORDER = ["zigzag_ring", "least_busy_layout", "choose_way"]

INTRODUCTION = """\
# Exercises: context parallelism

[Notebook 16b](../notebooks/16b_context_parallel.ipynb) goes before these. You write the forward pass of ring \
attention on a zig-zag layout with grouped heads, find the layout that balances a ring when documents are kept apart, \
and choose between a ring, an all-gather and Ulysses by bytes and seconds that you predict. Three exercises, about 75 \
minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. The first one runs on simulated \
ranks: its result, the bytes that each rank sends and holds, and its virtual time are judged. The other two are \
arithmetic. The first property that does not hold is explained.

**Hint.** `hint(zigzag_ring)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check zigzag_ring` checks, \
`hint zigzag_ring` gives a hint, and `reset zigzag_ring` puts the stub back."""

IMPORTS = """\
import math

import torch
import torch.distributed as dist

from tinydist.attention.online_softmax import finish, merge, nothing, part"""

SOLVED = ("tinydist.context_parallel",)
FORMULAS = ("tinydist.context_parallel", "tinydist.hardware", "tinydist.planner")
BY_HAND = "here it is arithmetic, and yours"


def numbers(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
