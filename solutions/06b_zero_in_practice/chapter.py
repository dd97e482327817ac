"""What the exercises of this chapter share: their order, their notebook's beginning, and what may not be used."""

ORDER = ["read_shard", "hybrid_gradient", "fastest_stage"]

INTRODUCTION = """\
# Exercises: ZeRO in practice

[Notebook 06b](../notebooks/06b_zero_in_practice.ipynb) goes before these. You read on q ranks what p ranks have \
written, reduce gradients inside of nodes first, in fp32, and choose the fastest stage that fits. Use the collectives \
of `torch.distributed`, but not `tinydist.zero`. Three exercises, about 65 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. The first property that does not \
hold is explained.

**Hint.** `hint(read_shard)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check read_shard` checks, \
`hint read_shard` gives a hint, and `reset read_shard` puts the stub back."""

IMPORTS = """\
import torch
import torch.distributed as dist"""

SOLVED = {
    "tinydist.zero": "tinydist.zero",
    "tinydist.checkpoint": "tinydist.checkpoint",
    "torch.distributed.fsdp": "torch's FSDP",
    "torch.distributed.checkpoint": "torch's distributed checkpoint",
}
