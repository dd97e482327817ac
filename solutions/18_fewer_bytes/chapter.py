"""What the exercises of this chapter share: their order, their notebook's beginning, and what may not be used."""

import torch

from tinydist.lab.author import Waits

ORDER = ["compress_rows", "one_bit_mean", "mended_one_bit_adam", "pays_below", "sharded_lamb"]

INTRODUCTION = """\
# Exercises: fewer bytes

[Notebook 18](../notebooks/18_fewer_bytes.ipynb) goes before these. You compress a matrix to one bit per number and \
keep the error, build an all-reduce of which both halves are compressed, for a group and for any weights of the ranks, \
find four bugs in a 1-bit Adam that raises no error, compute the bandwidth below which compression pays, and write \
LAMB for tensors that are cut into shards. Five exercises, about two hours.

**Check.** Fill in the function and run its cell, then the `check` cell below it. The first property that does not \
hold is explained.

**Hint.** `hint(compress_rows)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check compress_rows` checks, `hint \
compress_rows` gives a hint, and `reset compress_rows` puts the stub back.

Of `tinydist.compression` you may call what a task names, and nothing else."""

IMPORTS = """\
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F

from tinydist.compression import compressed_all_reduce, error_buffers
from tinydist.compression.bits import pack, unpack"""

SOLVED = {"tinydist.compression": "tinydist.compression", "numpy.packbits": "NumPy's packbits"}
BITS = "tinydist.compression.bits"
INSTEAD = "build it yourself"
WAITS = Waits("whatever is started is waited for")


def numbers(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
