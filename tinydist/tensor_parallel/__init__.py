"""Tensor parallel: matrices are cut inside of a layer, and all ranks work on each token together.

layouts.py      where activations are between layers: whole, or each rank's own tokens (sequence parallelism)
cuts.py         which part of a parameter a rank has
linear.py       a product by columns, then one by rows: what one gives, the other takes
ring.py         tokens are passed on in a ring, while those that are here are multiplied
embedding.py    a part of the vocabulary each
loss.py         cross-entropy without all logits
dropout.py      the same random numbers for copies, different ones for parts
gradients.py    their norm, in which a copy counts once
kinds.py        what becomes of each kind of layer; attention by heads, of keys there may be fewer than ranks
shard.py        a plain model, by a table of the names of its layers
"""

from .dropout import OwnDropout, Tracker
from .embedding import VocabularyParallelEmbedding
from .gradients import clip_grad_norm_, gathered
from .layouts import Tokens, Whole
from .linear import ColumnParallelLinear, RowParallelLinear
from .loss import cross_entropy
from .shard import shard

__all__ = [
    "ColumnParallelLinear",
    "OwnDropout",
    "RowParallelLinear",
    "Tokens",
    "Tracker",
    "VocabularyParallelEmbedding",
    "Whole",
    "clip_grad_norm_",
    "cross_entropy",
    "gathered",
    "shard",
]
