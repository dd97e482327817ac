"""What the exercises of this chapter share: their order and their notebook's beginning."""

ORDER = ["catches_wrong_sums", "mended_epoch", "loss_in_parts"]

INTRODUCTION = """\
# Exercises: your own program

[Notebook 15](../notebooks/15_your_own_program.ipynb) goes before these. You write a test that tells wrong all-reduces \
from right ones, mend a training loop that hangs, and compute a loss that fits into memory at no cost. Three \
exercises, about 65 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. The functions run on simulated \
ranks, in worlds of several sizes. The first property that does not hold is explained.

**Hint.** `hint(mended_epoch)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` lists the exercises and what you have done; `.venv/bin/python -m tinydist check mended_epoch` checks, `hint \
mended_epoch` gives a hint, and `reset mended_epoch` puts the stub back."""

IMPORTS = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F"""
