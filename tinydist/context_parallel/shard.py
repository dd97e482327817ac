"""Context parallelism for a whole model: each rank passes its part of the sequence; attention alone communicates.

    tokens [B, T/cp] -> embedding + position     of the rank's own tokens
                     -> blocks                   attention of all ranks' keys (ring, gather, ulysses, hybrid);
                                                 norm, MLP and residual sum need no other token
                     -> loss                     mean over the rank's own tokens: the whole loss is the mean over ranks

Parameters are replicated, so their gradients are averaged over data-parallel and context-parallel ranks alike: DDP or
ZeRO over the group of dp x cp. Activations are 1/cp per rank. Where parts are uneven a rank's loss is weighted by its
tokens, so that the mean over ranks stays the whole loss.

Source: NVIDIA, Megatron-core, context parallelism (its guide); Llama Team 2024, section 3.3.2.
"""

from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from ..attention.heads import GroupedQueryAttention
from ..attention.rotary import rotate
from ..rules import flag, one_of, validate
from .gather import gather_attention
from .layout import SequenceLayout, length
from .ring import ring_attention
from .ulysses import hybrid_attention, ulysses_attention

KINDS = {
    "ring": ring_attention,
    "gather": gather_attention,
    "ulysses": ulysses_attention,
    "hybrid": hybrid_attention,
}


@validate(model=nn.Module, group=dist.ProcessGroup, kind=one_of(tuple(KINDS)), balanced=flag, tokens=length)
@validate(within=dist.ProcessGroup)
def shard_attention(model, group=None, kind="ring", balanced=True, *, tokens=None, within=None):
    """Make a GPT or Decoder take this rank's part of each sequence, in place: ``shard_sequence(tokens, group)``.

    kind:    one of KINDS; "hybrid" has a second group, ``within``, over which each part is sharded once more.
    tokens:  of a sequence, where parts are uneven; None: all ranks have equally many.

    Parameters are not touched: average their gradients over the group, too. Raises ``ValueError`` for a model with
    dropout of attention's weights, or with a sliding window.
    """
    if (kind == "hybrid") != (within is not None):
        given = "None" if within is None else "a group"
        raise ValueError(f"shard_attention: within is the second group of kind='hybrid', got {kind=} and {given}")
    options = {"balanced": balanced, "tokens": tokens} | ({"within": within} if within else {})
    attend, place = partial(KINDS[kind], group=group, **options), Place(group, **options)
    for name, module in model.named_modules():
        if isinstance(module, GroupedQueryAttention):
            must_not(name, "a sliding window", module.window)
            module.attend = partial(attend_at, attend, place, module.rotary)
        elif hasattr(module, "mix"):
            must_not(name, "dropout of its weights", module.dropout.p)
            module.mix = partial(attend, causal=True)
        elif name == "position":
            module.__class__, module.place = PositionsOfRank, place
    if tokens is not None:
        model.cross_entropy = partial(weighted, model.cross_entropy, place)
    return model


def must_not(name, what, value):
    if value:
        raise ValueError(f"shard_attention: {name} has {what} ({value}), which is not sharded")


class Place:
    """Where this rank's tokens are."""

    def __init__(self, group, balanced, tokens, within=None):
        self.group, self.balanced, self.tokens, self.within = group, balanced, tokens, within
        self.ranks = dist.get_world_size(group) * (dist.get_world_size(within) if within else 1)

    def mine(self, tokens, device=None):
        """The positions of its part of ``tokens``."""
        layout = SequenceLayout.over("shard_attention", tokens, self.group, self.balanced)
        found = layout.positions(layout.rank, device)
        if self.within is not None:
            layout = SequenceLayout.over("shard_attention", len(found), self.within, False)
            found = found[layout.positions(layout.rank, device)]
        return found

    def positions(self, size, device=None):
        """The positions of the ``size`` tokens that it has."""
        tokens = size * self.ranks if self.tokens is None else self.tokens
        found = self.mine(tokens, device)
        if size != len(found):
            rule = f"of {tokens} tokens this rank has {len(found)}, got {size}"
            raise ValueError(f"shard_attention: {rule} (rank {dist.get_rank(self.group)})")
        return found


class PositionsOfRank(nn.Embedding):
    """Learned positions; ``weight[:T]`` has the rows of this rank's T tokens. Its parameter stays as it is."""

    weight = property(lambda self: RowsOfRank(self._parameters["weight"], self.place))


class RowsOfRank:
    def __init__(self, table, place):
        self.table, self.place = table, place

    def __getitem__(self, tokens):
        total = tokens.stop * self.place.ranks if self.place.tokens is None else self.place.tokens
        if total > len(self.table):
            rule = f"a sequence of {total} tokens exceeds the context length {len(self.table)}"
            raise ValueError(f"shard_attention: {rule}")
        return self.table[self.place.positions(tokens.stop, self.table.device)]


def attend_at(attend, place, rotary, q, k, v, **options):
    """``attend``. The model has rotated this rank's tokens to positions 0, 1, ...: here to where they are."""
    if rotary is not None:
        size = q.shape[2]
        further = place.positions(size, q.device) - torch.arange(size, device=q.device)
        q, k = rotate(torch.cat((q, k), dim=1), further, rotary).split((q.shape[1], k.shape[1]), dim=1)
    return attend(q, k, v, **options)


def weighted(cross_entropy, place, logits, targets, **options):
    """The mean over this rank's tokens, weighted by their share: its mean over the ranks is the whole loss."""
    share = len(place.mine(place.tokens)) / place.tokens
    return cross_entropy(logits, targets, **options) * (share * place.ranks)
