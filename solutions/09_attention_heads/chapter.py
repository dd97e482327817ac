"""What the exercises of this chapter share: their order, their notebook's beginning, and what they are judged by."""

from tinydist.lab.author import Memory, Own

ORDER = ["plan_cache", "decode_step", "window_step", "mended_cache", "rotate_longer"]
INTRODUCTION = """\
# Exercises: attention heads and the cache

[Notebook 09](../notebooks/09_attention_heads.ipynb) goes before these. You predict what a cache takes, write a step \
of decoding for sequences of different lengths, with a cache that keeps all and with a ring, mend attention with a \
cache, and rotate keys in a longer context. Five exercises, about 115 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. It is judged by one property after \
the other, and the first that does not hold is explained. What an answer holds is counted by the ledger: the bytes of\
 all tensors that are alive, at their peak.

**Hint.** `hint(plan_cache)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check plan_cache` checks,\
 `hint plan_cache` gives a hint, and `reset plan_cache` puts the stub back.

B is the batch, H the query heads, G the heads of keys and values, T the queries, S the keys, d the dim of a head. \
Build from matmuls and a softmax: of `tinydist.attention` only `rotate` may help (and not in exercise 5), and torch's \
`scaled_dot_product_attention` and `nn.MultiheadAttention` may not, but in exercise 4, where torch's is given."""

IMPORTS = """\
import math

import torch
import torch.nn.functional as F

from tinydist.attention import rotate"""


SOLVED = ("tinydist.attention", "torch.nn.attention")
LENT = ["tinydist.attention.rotary"]
INSTEAD = "here it is for you to build"
BUILT = Own("built from matmuls and a softmax", INSTEAD, SOLVED, torchs="attention", lent=LENT)
FLOAT = 4  # bytes
LOW = -1e12  # a score that a query has with the only key that it sees

# Of mistakes in more than one exercise:
BY_TURNS = (
    "Query head h reads head h % G of K and V, as with repeat; neighbors share one: repeat_interleave's order, "
    "h // (H/G)"
)
UNSCALED = "The scores are not scaled: a product over the head dim d grows with sqrt(d), so they are divided by it"


def with_score(score, keys, heads):
    """Queries [..., H, d] that have this score with keys [..., G, d]."""
    queries = score * keys.shape[-1] ** 0.5 * keys / (keys * keys).sum(-1, keepdim=True)
    return queries.repeat_interleave(heads // keys.shape[-2], -2)


class NoCopy(Memory):
    """Of keys and values. ``case.facts``: how many scores there are; a few tensors of their size may live at once."""

    def __init__(self, holds):
        super().__init__(holds, most=lambda case: 8 * FLOAT * case.facts)

    def general(self, trial, right):
        return (
            "There is no room for a copy of the keys. repeat_interleave, indexing by a tensor, cat, where, "
            ".contiguous(), .double(), .float() and arithmetic on K or V make one, and a product that has to broadcast "
            "them does, too: let a view of q meet K as it lies"
        )
