"""What the exercises of this chapter share: their order, their notebook's beginning, and what they are judged by."""

ORDER = ["round_to_bfloat16", "lost_updates", "scaled_step", "mended_fp16_step", "training_bytes"]

INTRODUCTION = """\
# Exercises: mixed precision

[Notebook 04](../notebooks/04_mixed_precision.ipynb) goes before these. You round by hand, predict where updates \
vanish, write a loss scaler that all ranks follow, mend a step of training in fp16, and predict what training holds \
in memory. Five exercises, about 100 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. It is judged by one property after \
the other, and the first that does not hold is explained.

**Hint.** `hint(round_to_bfloat16)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` lists the exercises and what you have done; `.venv/bin/python -m tinydist check round_to_bfloat16` checks,\
 `hint round_to_bfloat16` gives a hint, and `reset round_to_bfloat16` puts the stub back.

You need no GPU: a CPU rounds fp16 and bf16 as a GPU does. Use neither `torch.amp` nor `tinydist.precision` in your \
answers: what they do, you build."""

IMPORTS = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F

from tinydist.lab import check, hint"""

HERE = "here it is for you to do"
SOLVED = {"tinydist.precision": "tinydist.precision", "torch.amp.grad_scaler": "torch's GradScaler"}
