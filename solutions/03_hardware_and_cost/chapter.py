"""What the exercises of this chapter share: their order, their notebook's beginning, and whose numbers they use."""

from tinydist.hardware import DEVICES

ORDER = ["rows_needed", "layer_seconds", "what_to_keep"]

INTRODUCTION = """\
# Exercises: hardware and cost

[Notebook 03](../notebooks/03_hardware_and_cost.ipynb) goes before these. You find out from how many rows on a product \
is compute-bound, predict the time of a layer to within 15 % of two published measurements, and choose which \
activations to keep. All three are arithmetic: no ranks, no tensors. Three exercises, about 60 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function is called with several \
layers and GPUs, also with some that no factory makes. The first property that does not hold is explained.

**Hint.** `hint(rows_needed)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check rows_needed` checks, \
`hint rows_needed` gives a hint, and `reset rows_needed` puts the stub back.

Units are bytes, seconds, FLOP/s and bytes per second, without kilo, mega or giga."""

IMPORTS = """\
import math"""

SOLVED = ("tinydist.hardware",)
BY_HAND = "here it is arithmetic, and yours"
A100, H100 = DEVICES["A100 80GB"], DEVICES["H100"]
