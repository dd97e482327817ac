"""What the exercises of this chapter share: their order, their notebook's beginning, numbers, results with variants."""

import torch

ORDER = ["mended_config", "costly_key", "forward_step", "as_arguments"]

INTRODUCTION = """\
# Exercises: configurations

[Notebook 11b](../notebooks/11b_configurations.ipynb) goes before these. You mend a configuration that does not add up \
on other GPUs, find the key that costs the memory, write `forward_step` and `loss_func` for a masked loss whose mean \
is right over microbatches and data ranks, and say a configuration again in Megatron-LM's arguments. Four exercises, \
about 75 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function runs on simulated \
ranks, in worlds of several sizes, and is judged on the values and on the bytes sent. The first property that does not \
hold is explained.

**Hint.** `hint(mended_config)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check mended_config` checks, \
`hint mended_config` gives a hint, and `reset mended_config` puts the stub back.

A configuration is what `json.load` makes of a ds_config.json: dicts in a dict."""

IMPORTS = """\
import copy

import torch
import torch.distributed as dist"""


def numbers(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
