"""What the exercises of this chapter share: their order and their notebook's beginning; results with variants."""

ORDER = ["batch_and_bucket", "silent_defaults", "choose_flags"]

INTRODUCTION = """\
# Exercises: the real systems

[Notebook 12](../notebooks/12_real_systems.ipynb) goes before these. You read the batch and the buckets of a \
run from settings in five units, name the defaults that are in force in a run, by its losses and its bytes, and choose \
Megatron-LM's flags for a goal. Three exercises, about 55 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function is called with runs, \
clusters and goals of several kinds. The first property that does not hold is explained.

**Hint.** `hint(silent_defaults)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` lists the exercises and what you have done; `.venv/bin/python -m tinydist check silent_defaults` checks, \
`hint silent_defaults` gives a hint, and `reset silent_defaults` puts the stub back."""

IMPORTS = """\
from itertools import product"""
