"""What the exercises of this chapter share: their order and their notebook's beginning; results with variants."""

ORDER = ["train_under_torchrun", "wire_time", "mended_elastic", "lost_time", "culprit"]

INTRODUCTION = """\
# Exercises: many machines

[Notebook 12b](../notebooks/12b_machines.ipynb) goes before these. You take a script from one GPU to torchrun, read \
from NCCL's log which wire the bytes take, mend a script that loses its place when the number of processes changes, \
say where the time of a killed run has gone, and find out from the records of all ranks who keeps a job from going on. \
Five exercises, about 125 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. The two scripts run on simulated \
ranks, in worlds of several sizes; the other functions are called with logs and records of several kinds. The first \
property that does not hold is explained.

**Hint.** `hint(train_under_torchrun)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` lists the exercises and what you have done; `.venv/bin/python -m tinydist check culprit` checks, `hint \
culprit` gives a hint, and `reset culprit` puts the stub back."""

IMPORTS = """\
import os
import re
from itertools import pairwise

import torch
import torch.distributed as dist"""
