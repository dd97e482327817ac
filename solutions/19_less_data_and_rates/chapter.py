"""What the exercises of this chapter share: their order, their notebook's beginning, and what may not be used."""

import torch

ORDER = ["drop_tokens", "read_rate", "mended_one_cycle", "winners"]

INTRODUCTION = """\
# Exercises: less data, and rates

[Notebook 19](../notebooks/19_less_data_and_rates.ipynb) goes before these. You write a layer that computes random \
tokens, read a range test whose curve is noisy and breaks, find four bugs in a 1Cycle that raises no error, and say \
from measured curves which method wins, at equal tokens and at equal FLOPs, or that none does. Four exercises, about \
an hour and a half.

**Check.** Fill in the function and run its cell, then the `check` cell below it. The first property that does not \
hold is explained.

**Hint.** `hint(drop_tokens)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check drop_tokens` checks, `hint \
drop_tokens` gives a hint, and `reset drop_tokens` puts the stub back.

Of `tinydist.training` and of `torch.optim.lr_scheduler` you may call nothing: they have the solutions."""

IMPORTS = """\
import math
import statistics
from itertools import pairwise

import torch"""

SOLVED = {"tinydist.training": "tinydist.training", "torch.optim.lr_scheduler": "torch's schedulers"}
INSTEAD = "build it yourself"


def numbers(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
