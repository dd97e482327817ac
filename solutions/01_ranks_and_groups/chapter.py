"""What the exercises of this chapter share: their order and their notebook's beginning."""

ORDER = ["place", "mesh_sums", "mended_step"]

INTRODUCTION = """\
# Exercises: ranks and groups

[Chapter 01](../notebooks/01_ranks_and_groups.ipynb) goes before these. Three exercises, about 40 \
minutes. The first takes five.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function runs on simulated \
ranks, in worlds of several sizes. The first property that does not hold is explained.

**Hint.** `hint(place)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check place` checks, \
`hint place` gives a hint, and `reset place` puts the stub back."""

IMPORTS = """\
import torch
import torch.distributed as dist"""
