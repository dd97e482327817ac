"""Tensor parallelism: weight matrices are sharded within a layer; all ranks process every token.

layouts.py      activations between layers: replicated, or sequence parallel
cuts.py         how a parameter is sharded
linear.py       column- and row-parallel linear layers
ring.py         their collectives on a ring, overlapped with the matmul
embedding.py    vocabulary-parallel embedding
loss.py         vocabulary-parallel cross-entropy
dropout.py      random numbers: shared for replicated activations, different for sharded ones
gradients.py    clipping: replicated gradients count once
kinds.py        how each kind of layer is sharded; attention by heads
shard.py        shards a plain model by a table of module names (a parallelize plan)
"""

from .dropout import RNGTracker, ShardedDropout
from .embedding import VocabParallelEmbedding
from .gradients import clip_grad_norm_, gathered
from .layouts import Replicated, SequenceParallel
from .linear import ColumnParallelLinear, RowParallelLinear
from .loss import cross_entropy
from .shard import shard

__all__ = [
    "ColumnParallelLinear",
    "RNGTracker",
    "Replicated",
    "RowParallelLinear",
    "SequenceParallel",
    "ShardedDropout",
    "VocabParallelEmbedding",
    "clip_grad_norm_",
    "cross_entropy",
    "gathered",
    "shard",
]
