"""What the exercises of this notebook share: their order and their notebook's beginning."""

ORDER = ["who_is_missing", "first_difference", "where_it_began"]

INTRODUCTION = """\
# Exercises: a hang on a cluster

[Notebook 01b](../notebooks/01b_hangs_on_a_cluster.ipynb) goes before these. You read what the watchdog says, \
records of one group, and records of several groups. Three exercises, about 30 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function reads the records of \
several hangs. The first property that does not hold is explained.

**Hint.** `hint(who_is_missing)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` lists the exercises and what you have done; `.venv/bin/python -m tinydist check who_is_missing` checks, \
`hint who_is_missing` gives a hint, and `reset who_is_missing` puts the stub back."""

IMPORTS = """\
import re"""
