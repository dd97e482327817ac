"""What the exercises of this chapter share: their order, their notebook's beginning, and whose numbers they use."""

from tinydist.hardware import DEVICES

ORDER = ["tokens_needed", "fit_link", "layer_seconds"]

INTRODUCTION = """\
# Exercises: hardware and cost

[Notebook 03](../notebooks/03_hardware_and_cost.ipynb) goes before these. You find out from how many tokens on \
the experts \
of a model are compute-bound, find three bugs in a program that gets a link's latency and bandwidth out of two \
measurements, and build a prediction of \
a layer's time. All three are arithmetic: no ranks, no tensors. Three exercises, about 65 minutes.

**Check.** Fill in (or mend) the function and run its cell, then the `check` cell below it. Your function is called \
with several layers and GPUs, also with some that no factory makes. The first property that does not hold is explained.

**Hint.** `hint(tokens_needed)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check tokens_needed` checks, \
`hint tokens_needed` gives a hint, and `reset tokens_needed` puts the stub back.

Units are bytes, seconds, FLOP/s and bytes per second, without kilo, mega or giga."""

IMPORTS = """\
import math"""

SOLVED = ("tinydist.hardware",)
BY_HAND = "here it is arithmetic, and yours"
A100, H100 = DEVICES["A100 80GB"], DEVICES["H100"]
