"""Embedding: each rank has the rows of a part of the vocabulary.

    tokens        5 0 9 3          rank 0 has tokens 0 to 4       . E E E        rank 1: 5 to 9      E . . .
    found here, zeros elsewhere; the sum over the ranks is what one table would have given, to the last digit

One all-reduce of what is embedded: 2(t-1)/t bsh numbers, once a step; backward sends nothing.
Source: Shoeybi et al., Megatron-LM, 2019, section 3.
"""

import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from ..rules import takes
from .cuts import Cut
from .layouts import Whole


def local(tokens, cut):
    """Tokens as rows of this rank's part, and which of them are elsewhere; those stand at row 0.

    One that is in no part is in no row either, and whoever looks it up says so.
    """
    begin, end = cut.places.start, cut.places.stop
    elsewhere = (tokens < begin) | (tokens >= end)
    in_another = elsewhere & (tokens >= 0) & (tokens < cut.size)
    return (tokens - begin).masked_fill(in_another, 0), elsewhere


@takes(embedding=nn.Embedding, group=dist.ProcessGroup)
class VocabularyParallelEmbedding(nn.Module):
    """Tokens [B, T] to [B, T, D], whole on every rank."""

    def __init__(self, embedding, group=None):
        super().__init__()
        self.layout = Whole(group)
        self.weight = Cut.among(self.layout, 0, embedding.num_embeddings).parameter(embedding.weight)

    def forward(self, tokens):
        rows, elsewhere = local(tokens, self.weight.cut)
        found = F.embedding(rows, self.weight).masked_fill(elsewhere[..., None], 0)
        return self.layout.leave(found)
