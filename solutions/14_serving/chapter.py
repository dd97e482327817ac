"""What the exercises of this chapter share: their order, their notebook's beginning, and what they are judged by."""

import re

from tinydist.lab.author import Own

ORDER = ["share_blocks", "decode_by_table", "next_pass", "mended_blocks"]

INTRODUCTION = """\
# Exercises: serving

[Notebook 14](../notebooks/14_serving.ipynb) goes before these. You hand out blocks that sequences share until they \
write, decode over keys that lie in blocks, decide who runs when memory is short, and find three bugs in a cache of \
blocks. No ranks, no messages. Four exercises, about 125 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. It is judged by one property after \
the other, and the first that does not hold is explained.

**Hint.** `hint(share_blocks)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` lists the exercises and what you have done; `.venv/bin/python -m tinydist check share_blocks` checks, \
`hint share_blocks` gives a hint, and `reset share_blocks` puts the stub back.

Blocks are counted from 0, and so are the tokens of a sequence: token i lies in slot i % size of the block that its \
table names at place i // size. Verdicts tell in short what happens to sequences: a+6, a gets 6 tokens more; b=a, b \
begins as a; a-3, the last 3 are taken back; a?, it is read; a., it ends."""

IMPORTS = """\
import math

import torch"""

SOLVED = ("tinydist.serving", "tinydist.attention", "tinydist.planner", "torch.nn.attention")
BY_HAND = Own("built by yourself", "here it is for you to build", SOLVED, torchs="attention")


def events_of(text):
    """a+6 b=a b-3 b? a. as the introduction has it."""
    for name, sign, rest in re.findall(r"(\w)([+=?.-])(\w*)", text):
        what = {"+": "add", "=": "fork", "-": "drop", "?": "read", ".": "end"}[sign]
        yield (what, rest, name) if what == "fork" else (what, name, *map(int, [rest] if rest else []))
