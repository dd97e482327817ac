"""What the exercises of this chapter share: their order, their notebook's beginning, and what is to be done by hand."""

ORDER = ["gradients_in_runs", "attend_by_layout", "layers_needed", "least_seconds"]

INTRODUCTION = """\
# Exercises: long context

[Notebook 16](../notebooks/16_long_context.ipynb) goes before these. You train blocks with dropout that forget what \
they computed, attend over the blocks of a layout, find how many layers it takes to know of all, and find the least \
recomputation for a budget of bytes. Use any operation of `torch`, but neither `tinydist.recompute`, \
`tinydist.attention` nor torch's own checkpointing or attention. Four exercises, about 95 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function runs on small inputs, \
and is judged on what it returns, on the matmuls that it computes, and on the bytes that it holds at their peak. The \
first property that does not hold is explained.

**Hint.** `hint(gradients_in_runs)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check gradients_in_runs` checks, \
`hint gradients_in_runs` gives a hint, and `reset gradients_in_runs` puts the stub back.

All tensors are float32."""

IMPORTS = """\
import math

import torch"""

SOLVED = ("tinydist.recompute", "tinydist.attention", "torch.utils.checkpoint", "torch.nn.attention")
BY_HAND = "here it is for you to do"
