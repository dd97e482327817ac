"""What the exercises of this chapter share: their order and their notebook's beginning."""

ORDER = ["train_under_torchrun", "choose_flags", "mended_elastic", "culprit"]

INTRODUCTION = """\
# Exercises: the real systems, and real machines

[Notebook 12](../notebooks/12_real_systems.ipynb) goes before these. You take a script from one GPU to torchrun, \
choose Megatron-LM's flags for a goal, mend a script that loses its place whenever the number of \
processes changes, and find out from the records of all ranks who keeps a job from going on. Four exercises, about 100 \
minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. The two scripts run on simulated \
ranks, in worlds of several sizes; the other two functions are called with clusters, goals and records of several \
kinds. The first property that does not hold is explained.

**Hint.** `hint(train_under_torchrun)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` lists the exercises and what you have done; `.venv/bin/python -m tinydist check culprit` checks, `hint \
culprit` gives a hint, and `reset culprit` puts the stub back."""

IMPORTS = """\
import os
from itertools import product

import torch
import torch.distributed as dist"""
