"""Real text that is on every machine: the documentation that Python carries for ``help()``.

Some 460 to 700 kB of English and Python, as bytes. It differs from one release of Python to the next: programs that
print numbers should print such as hold for any text.
"""

from functools import cache
from pydoc_data.topics import topics

import torch


@cache
def load_text():
    """All of it, as one tensor of bytes: uint8 [N]."""
    return torch.frombuffer(bytearray("\n\n".join(topics[name] for name in sorted(topics)).encode()), dtype=torch.uint8)


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
