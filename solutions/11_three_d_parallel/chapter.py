"""What the exercises of this chapter share: their order, their notebook's beginning, numbers, results with variants."""

import torch

from tinydist.lab.author import Own

ORDER = ["groups", "clip", "place_axes", "tokens_for_zero", "mended_two_axes"]

INTRODUCTION = """\
# Exercises: data, tensor and pipeline parallel together

[Notebook 11](../notebooks/11_three_d_parallel.ipynb) goes before these. You say who is in whose group, for any axes \
in any order, clip by the norm of a model that is cut in three ways, place three axes on nodes so that the network \
between them is used least, say from how many tokens on each stage of ZeRO hides what it sends, and find bugs in a \
step with two axes. Use the collectives of `torch.distributed`, but not `tinydist.training`. Five exercises, about \
110 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function runs on simulated \
ranks, in worlds of several sizes, and is judged on the values and on the bytes sent. The first property that does not \
hold is explained.

**Hint.** `hint(groups)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check groups` checks, `hint \
groups` gives a hint, and `reset groups` puts the stub back.

A mesh has the axes pp (stages of a pipeline), dp (replicas) and tp (parts of each matrix)."""

IMPORTS = """\
import math
from itertools import permutations
from math import prod

import torch
import torch.distributed as dist"""

NO_ENGINE = Own(
    "not tinydist.training",
    "write it with the collectives of torch.distributed",
    {"tinydist.training": "tinydist.training", "tinydist.tensor_parallel": "tinydist.tensor_parallel"},
)


def numbers(*shape, seed, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
