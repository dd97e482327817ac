"""What the exercises of this chapter share: their order, their notebook's beginning, and what they are tried on."""

import torch

from tinydist.hardware import find_cluster

ORDER = ["tree_reduce", "chain_reduce", "halving_doubling_any", "mended_hierarchy"]

INTRODUCTION = """\
# Exercises: collectives on clusters

[Notebook 03b](../notebooks/03b_collectives_on_clusters.ipynb) goes before these. You add up along a tree, and \
along a chain in chunks; you halve and double on any number of ranks, and mend an all-reduce that sends too much from
node to node. Four exercises, about 90 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function runs on simulated \
ranks, in worlds of several sizes, and is judged on three axes: the values, the bytes sent, the bytes held; and on the \
virtual time. The first property that does not hold is explained.

**Hint.** `hint(tree_reduce)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check tree_reduce` checks \
(`check 03b_collectives_on_clusters`: all of them), `hint tree_reduce` gives a hint, and `reset tree_reduce` puts the \
stub back.

n is the bytes of one rank's tensor, p the number of ranks; lg is the logarithm to base 2; a message takes \
alpha + n/beta seconds. Look at your own run whenever you like: `tinydist.launch(my_program, 4)`."""

IMPORTS = """\
import torch
import torch.distributed as dist"""

BY_HAND = "build it yourself, from messages: send, recv, isend, irecv, batch_isend_irecv"
SOLVED = ("tinydist.collectives",)
LARGE = 1 << 12  # numbers, where bytes held and time are judged
FLOAT = 4  # bytes
TWO_BY_FOUR = find_cluster("2 x 4").communication_alone


def numbers(rank, shape, dtype=torch.float32):
    """They differ by rank and position, and are the same in every check."""
    generator = torch.Generator().manual_seed(2000 + rank)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=dtype)
    return torch.randint(-100, 100, shape, generator=generator, dtype=dtype)
