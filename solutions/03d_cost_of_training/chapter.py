"""What the exercises of this chapter share: their order and their notebook's beginning."""

ORDER = ["what_to_keep", "flops_per_token", "most_devices"]

INTRODUCTION = """\
# Exercises: the cost of training

[Notebook 03d](../notebooks/03d_cost_of_training.ipynb) goes before these. You choose which activations to \
keep, so that \
a step fits; you count the FLOPs of a model with experts, as its report and as its hardware would count them; \
and you find \
out how many devices can share a batch. All three are arithmetic: no ranks, no tensors. Three exercises, about \
65 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function is called with \
several \
models and GPUs, also with some that nobody has built. The first property that does not hold is explained.

**Hint.** `hint(what_to_keep)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check what_to_keep` checks, \
`hint what_to_keep` gives a hint, and `reset what_to_keep` puts the stub back.

Units are bytes, seconds, FLOP/s and bytes per second, without kilo, mega or giga."""

IMPORTS = """\
import math"""

SOLVED = ("tinydist.hardware", "tinydist.planner")
BY_HAND = "here it is arithmetic, and yours"
