"""What the exercises of this chapter share: their order, their notebook's beginning, and what may not be used."""

ORDER = ["predicted_step", "quantize_blocks", "round_by_chance", "weight_gradient"]

INTRODUCTION = """\
# Exercises: FP8 and FP4

[Notebook 04b](../notebooks/04b_fp8_and_fp4.ipynb) goes before these. You predict a training step in 16 and in 8 bits, \
on one GPU and on many, put a tensor into blocks of 4 bits by the rules of MX and of NVFP4, round to 4 bits by chance, \
and compute the gradient of a weight in 4 bits. Four exercises, about an hour and three quarters.

**Check.** Fill in the function and run its cell, then the `check` cell below it. The first property that does not \
hold is explained.

**Hint.** `hint(predicted_step)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check predicted_step` checks, `hint \
predicted_step` gives a hint, and `reset predicted_step` puts the stub back.

You need no GPU. Use neither `tinydist.precision` nor `tinydist.planner` in your answers: what they do, you build."""

IMPORTS = """\
import torch"""

HERE = "here it is for you to do"
SOLVED = {"tinydist.precision": "tinydist.precision", "tinydist.planner": "tinydist.planner"}
