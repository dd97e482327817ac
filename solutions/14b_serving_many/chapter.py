"""What the exercises of this chapter share: their order, their notebook's beginning, and what they are judged by."""

ORDER = ["find_prefixes", "read_load_log", "plan_batch", "fastest_decode"]

INTRODUCTION = """\
# Exercises: serving many requests

[Notebook 14b](../notebooks/14b_serving_many.ipynb) goes before these. You build a prefix cache, read what the log of \
a load test says about latency, plan how many sequences a GPU serves in memory and in time, and choose GPUs and drafts \
for decoding. No ranks, no messages. Four exercises, about 100 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. It is judged by one property after \
the other, and the first that does not hold is explained.

**Hint.** `hint(find_prefixes)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` lists the exercises and what you have done; `.venv/bin/python -m tinydist check find_prefixes` checks, \
`hint find_prefixes` gives a hint, and `reset find_prefixes` puts the stub back."""

IMPORTS = """\
import math"""

SOLVED = ("tinydist.serving", "tinydist.attention", "tinydist.planner", "torch.nn.attention")
