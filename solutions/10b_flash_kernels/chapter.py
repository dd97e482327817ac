"""What the exercises of this chapter share: their order and their notebook's beginning."""

ORDER = ["choose_tile"]

INTRODUCTION = """\
# Exercises: flash kernels

[Notebook 10b](../notebooks/10b_flash_kernels.ipynb) goes before these. You choose a tile for a GPU, and predict what \
it loads.

**Check.** Fill in the function and run its cell, then the `check` cell below it. The first property that does not \
hold is explained.

**Hint.** `hint(choose_tile)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check choose_tile` checks, \
`hint choose_tile` gives a hint, and `reset choose_tile` puts the stub back."""

IMPORTS = """\
import math"""

SOLVED = ("tinydist.attention",)
BY_HAND = "here it is for you to do"
