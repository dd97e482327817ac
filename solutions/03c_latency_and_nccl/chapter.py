"""What the exercises of this chapter share: their order, and their notebook's beginning."""

ORDER = ["ring_latency", "read_benchmark", "choose_protocol", "choose_algorithm"]

INTRODUCTION = """\
# Exercises: latency, and what NCCL chooses

[Notebook 03c](../notebooks/03c_latency_and_nccl.ipynb) goes before these. You time a ring whose senders are busy for a
part of the latency, read the measurements of real machines, choose a protocol as NCCL does, and then between a ring and
a tree, whose latency is in flight. All four are arithmetic: no ranks, no tensors. Four exercises, about 85 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function is called with
published measurements and presets of hardware, and with some that nobody makes. The first property that does not
hold is explained.

**Hint.** `hint(ring_latency)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check ring_latency` checks \
(`check 03c_latency_and_nccl`: all of them), `hint ring_latency` gives a hint, and `reset ring_latency` puts the stub
back.

n is the bytes of one rank's tensor, p the number of ranks; lg is the logarithm to base 2. Units are bytes, seconds and
bytes per second, without kilo, mega or giga."""

IMPORTS = """\
from math import log2"""

ARITHMETIC = "here it is arithmetic, and yours"
FORMULAS = ("tinydist.hardware", "tinydist.collectives")
