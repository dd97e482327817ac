"""What the exercises of this chapter share: their order, their notebook's beginning, and a model to train."""

import torch

ORDER = ["accumulate", "tokens_to_hide", "fewest_gpus"]

INTRODUCTION = """\
# Exercises: scaling data parallel

[Notebook 05b](../notebooks/05b_scaling_data_parallel.ipynb) goes before these. You reduce once for several \
microbatches, find out how many tokens hide the gradients of experts, and choose GPUs, microbatch and accumulation for \
a deadline. The first runs on simulated ranks, in fp32; the other two are arithmetic. Three exercises, about an hour.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function is tried in several \
worlds, and judged on the values, and where they are the point on what is sent and held. The first property that does \
not hold is explained.

**Hint.** `hint(accumulate)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check accumulate` checks, `hint \
accumulate` gives a hint, and `reset accumulate` puts the stub back.

Units are bytes, seconds, FLOP/s and bytes per second, without kilo, mega or giga."""

IMPORTS = """\
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F"""

TORCHS = {"torch.nn.parallel": "torch's DistributedDataParallel"}
PLANNERS = ("tinydist.hardware", "tinydist.planner")
BY_HAND = "here it is arithmetic, and yours"


def build(kind):
    with torch.random.fork_rng(devices=[]):  # a check leaves the reader's random numbers as they are
        torch.manual_seed(0)
        return kind()


def gradients(model):
    return {f"{name}.grad": None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
