"""What the exercises of this chapter share: their order, their notebook's beginning, and what may not be used."""

ORDER = ["mended_graph", "fuse_chain", "plan_buffers", "place_collectives", "mended_softmax"]

INTRODUCTION = """\
# Exercises: compilers

[Notebook 20](../notebooks/20_compilers.ipynb) goes before these. You make one graph of a function that breaks it, \
fuse a chain of operators and count its bytes, plan buffers in the order in which they come, place the collectives of \
a chain of matmuls whose weights are cut, and find three bugs in a fused softmax that raises no error. Five exercises, \
about 90 minutes.

**Check.** Fill in (or mend) the function and run its cell, then the `check` cell below it. The first property that \
does not hold is explained.

**Hint.** `hint(fuse_chain)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check fuse_chain` checks, `hint \
fuse_chain` gives a hint, and `reset fuse_chain` puts the stub back.

An answer calls nothing of `tinydist.compilers`. Bytes are integers."""

IMPORTS = """\
import math

import torch
import torch.nn.functional as F"""

SOLVED = {"tinydist.compilers": "tinydist.compilers"}
INSTEAD = "build it yourself"
