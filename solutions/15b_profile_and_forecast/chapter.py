"""What the exercise of this chapter's notebook needs."""

ORDER = ["faster_step"]

INTRODUCTION = """\
# Exercise: a faster step

[Notebook 15b](../notebooks/15b_profile_and_forecast.ipynb) goes before this. You read the timeline of a \
training step, and hide what it sends behind backward: at least 32 % less time. One exercise, about 30 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. It runs on simulated ranks, in \
worlds of several sizes. The first property that does not hold is explained.

**Hint.** `hint(faster_step)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` lists the exercises and what you have done; `.venv/bin/python -m tinydist check faster_step` checks, `hint \
faster_step` gives a hint, and `reset faster_step` puts the stub back."""

IMPORTS = """\
import torch
import torch.distributed as dist"""
