"""The dataset: Python's own documentation, as bytes, available offline: half a megabyte of English and Python.

It is the documentation that Python 3.11.7 has for ``help()``, in a file beside this one: other releases of Python have
other words, with which a notebook would print other losses. Copyright Python Software Foundation, under the license in
text_license.txt.
"""

from functools import cache
from pathlib import Path

import torch

FILE = Path(__file__).with_name("text.txt")


@cache
def load_text():
    """All of it, as one tensor of bytes: uint8 [N]."""
    return torch.frombuffer(bytearray(FILE.read_bytes()), dtype=torch.uint8)


def batch(step, size, context=64, seed=0):
    """``size`` sequences for training step ``step``, drawn from everywhere in the text: the same on every rank.

    Returns tokens and targets, int64 [size, context] each; ``targets[:, t]`` is the byte after ``tokens[:, t]``. A rank
    takes its rows of them: the global batch does not depend on how many ranks share it.
    """
    text = load_text()
    draw = torch.Generator().manual_seed(1_000_003 * seed + step)
    starts = torch.randint(len(text) - context, (size, 1), generator=draw)
    sequences = text[starts + torch.arange(context + 1)].long()  # [size, context + 1]
    return sequences[:, :-1], sequences[:, 1:]
