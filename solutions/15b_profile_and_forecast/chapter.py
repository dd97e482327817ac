"""What the exercises of this chapter's notebook need."""

ORDER = ["peak_by_owner", "waited_for", "faster_step"]

INTRODUCTION = """\
# Exercises: read what a run has recorded

[Notebook 15b](../notebooks/15b_profile_and_forecast.ipynb) goes before these. You read a memory snapshot and a trace, \
and then the timeline of a training step, of which you hide what it sends behind backward: at least 32 % less time. \
Three exercises, about 50 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. The first two read \
lists, and the third runs on simulated ranks, in worlds of several sizes. The first property that does not hold is \
explained.

**Hint.** `hint(peak_by_owner)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` lists the exercises and what you have done; `.venv/bin/python -m tinydist check peak_by_owner` checks, `hint \
peak_by_owner` gives a hint, and `reset peak_by_owner` puts the stub back."""

IMPORTS = """\
import torch
import torch.distributed as dist"""
