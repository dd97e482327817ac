"""What the exercises of this chapter share: their order, their notebook's beginning, and what they are tried on."""

import torch

from tinydist.lab.author import Case

ORDER = ["average_uneven", "mended_loop", "settings_in_effect"]

INTRODUCTION = """\
# Exercises: four ranks in one notebook

[Chapter 00](../notebooks/00_start_here.ipynb) goes before these. Three exercises, about 30 minutes. The first takes \
five.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function runs on simulated \
ranks, in worlds of several sizes. The first property that does not hold is explained.

**Hint.** `hint(average_uneven)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` shows how far you are, and takes you on: `check`, `hint`, `next`, and `watch`, which checks whenever you \
save; `reset` puts the stub back."""

IMPORTS = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grad_norm_"""


def numbers(seed, *shape):
    """The same in every check."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def shares(*sequences):
    """A world where rank r has the mean gradient of so many sequences. Of none, it is zero."""

    def arguments(rank):
        gradient = numbers(rank, 6) if sequences[rank] else torch.zeros(6)
        return gradient, sequences[rank]

    return Case(len(sequences), arguments, f"shares of {', '.join(map(str, sequences))} sequences")
