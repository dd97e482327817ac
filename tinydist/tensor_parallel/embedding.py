"""Vocabulary-parallel embedding: each rank has the rows of a part of the vocabulary.

    tokens        5 0 9 3          rank 0 has tokens 0 to 4       . E E E        rank 1: 5 to 9      E . . .
    found here, zeros elsewhere; the sum over the ranks is what one table would have given, to the last digit

One all-reduce of the embeddings: 2(t-1)/t bsh elements, once per step; backward sends nothing.
Source: Shoeybi et al., Megatron-LM, 2019, section 3.
"""

import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from ..rules import validate
from .cuts import Cut
from .layouts import Replicated


def local(tokens, cut):
    """Tokens as row indices of this rank's shard, and a mask of those on other ranks (their index is 0).

    A token outside of the vocabulary keeps an invalid row, so the lookup raises.
    """
    begin, end = cut.places.start, cut.places.stop
    elsewhere = (tokens < begin) | (tokens >= end)
    in_another = elsewhere & (tokens >= 0) & (tokens < cut.size)
    return (tokens - begin).masked_fill(in_another, 0), elsewhere


@validate(embedding=nn.Embedding, group=dist.ProcessGroup)
class VocabParallelEmbedding(nn.Module):
    """Tokens [B, T] to [B, T, D], replicated."""

    def __init__(self, embedding, group=None):
        super().__init__()
        self.layout = Replicated(group)
        self.weight = Cut.among(self.layout, 0, embedding.num_embeddings).parameter(embedding.weight)

    def forward(self, tokens):
        rows, elsewhere = local(tokens, self.weight.cut)
        found = F.embedding(rows, self.weight).masked_fill(elsewhere[..., None], 0)
        return self.layout.leave(found)
