"""What the exercises of this chapter share: their order and their notebook's beginning; results with variants."""

ORDER = ["flash_kernel", "choose_tile", "time_of_versions", "first_backend"]

INTRODUCTION = """\
# Exercises: flash kernels

[Notebook 10b](../notebooks/10b_flash_kernels.ipynb) goes before these. You write the forward pass of flash attention \
as a Triton kernel, choose the tile of a kernel for a GPU and predict what it loads, predict what four versions of \
flash attention do with a GPU, and find out which backend PyTorch runs. Four exercises, about 85 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your kernel runs in Triton's \
interpreter, on your CPU, and is judged on its output and on the record of what each of its programs loads. The first \
property that does not hold is explained. Without Triton the check of the kernel says that it is skipped: on Linux, \
`make kernels` installs it.

**Hint.** `hint(flash_kernel)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check flash_kernel` checks, \
`hint flash_kernel` gives a hint, and `reset flash_kernel` puts the stub back."""

IMPORTS = """\
import math
import os

os.environ["TRITON_INTERPRET"] = "1"  # must be set before Triton is imported

import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

try:
    import triton.language as tl
except ImportError:  # the check of flash_kernel will say that it is skipped
    from tinydist.lab.triton_answers import tl"""

SOLVED = ("tinydist.attention",)
BY_HAND = "here it is for you to do"
