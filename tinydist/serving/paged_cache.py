"""Paged KV cache: blocks of all sequences in one tensor, and forward passes over a flattened (varlen) batch.

    a pass, N = 6         sequence     a   b   c c c c        a and b decode, c computes a chunk of its prompt
                          position     9   3   4 5 6 7
                          written to   the slot that its table names, in tensors [blocks, G, block_size, d]
                          read         the slots of all its tokens, gathered: [B, G, S, d], as from a contiguous cache

A model uses these like its own caches: linear layers see N rows without padding, regardless of the sequence; only
attention needs the sequence boundaries. Sequences with the same number of queries are batched, so a decode-only pass is
one call. Gathering copies the keys and values; a kernel would read them through the tables (see ``paged_attention``).

What is gathered beyond the end of a shorter sequence is its own last token, and is masked.

Source: Kwon et al. 2023, PagedAttention, sections 4.1 and 5; Yu et al. 2022, Orca, section 3.2 (selective batching).
"""

from itertools import accumulate, groupby

import torch

from ..attention.kv_cache import KVCache, attend_with_cache
from ..attention.latent import LatentCache
from ..attention.window_cache import WindowKVCache
from ..rules import function, validate
from .blocks import BlockPool


class Paged:
    """The memory of a cache [batch, G, capacity, d], with blocks in place of the batch."""

    def __init__(self, storage, attend):
        self.names, self.tensors, self.attend = storage.names, storage.tensors, attend
        self.layout = None

    def positions(self, tokens):
        """Of the rows in this pass: [1, N]."""
        return self.layout.positions

    def keep(self, *rows, counts=None):
        """Write rows [1, G, N, d], and gather all tokens of each sequence: [B, G, S, d]."""
        G, d, N = self.tensors[0].shape[1], self.tensors[0].shape[3], self.layout.positions.shape[1]
        if counts is not None or any(each.shape != (1, G, N, d) for each in rows):
            got = ", ".join(f"{name} {list(each.shape)}" for name, each in zip(self.names, rows))
            raise ValueError(f"{type(self).__name__}: the pass has rows [1, {G}, {N}, {d}] and no counts, got {got}")
        write, read = self.layout.rows(G)
        for tensor, new in zip(self.tensors, rows):
            tensor.view(-1, d).index_copy_(0, write, new.reshape(-1, d))
        return [tensor.view(-1, d).index_select(0, read).view(-1, G, self.layout.longest, d) for tensor in self.tensors]

    def with_prefix(self, attend):
        """``attend`` for queries [1, H, N, d] and keys and values as ``keep`` returns them."""
        return self.layout.with_prefix(self.attend or attend)

    def copy(self, pairs):
        """Copy blocks, (from, to) each."""
        sources, targets = (torch.tensor(each, device=self.tensors[0].device) for each in zip(*pairs))
        for tensor in self.tensors:
            tensor[targets] = tensor[sources]


class PagedKVCache(Paged, KVCache):
    """Of one layer: keys and values [blocks, kv_heads, block_size, head_dim]."""


class PagedLatentCache(Paged, LatentCache):
    """Of one layer: latents and rotary keys [blocks, 1, block_size, latent + rotary_dim]."""


def makes_caches(value):
    """a model that makes caches, as Decoder does"""
    return callable(getattr(value, "caches", None)) and not isinstance(value, type)


@validate(model=makes_caches, pool=BlockPool, attend=function)
class PagedCaches(list):
    """One for each layer of ``model``, a ``Decoder``: ``model(tokens, caches)`` computes the pass of ``lay_out``.

    attend:  what computes attention in place of what the model has, ``fused_attention`` or one of its kind.

    A layer with a sliding window reads no more than its window, but its blocks are all kept.
    """

    def __init__(self, model, pool, attend=None):
        kinds = {KVCache: PagedKVCache, LatentCache: PagedLatentCache}
        caches = model.caches(pool.num_blocks, pool.block_size)
        for cache in caches:
            if isinstance(cache, WindowKVCache):
                sizes = f"block_size ({pool.block_size}) exceeds a layer's window ({cache.window})"
                raise ValueError(f"PagedCaches: {sizes}")
        super().__init__(kinds[type(each)](each, attend) for each in caches)

    @property
    def nbytes(self):
        return sum(each.nbytes for each in self)

    def lay_out(self, spans):
        """The next pass: of each sequence (table, tokens that are computed, tokens to compute)."""
        layout = BatchLayout(spans, self[0].tensors[0].device)
        for each in self:
            each.layout = layout
        return layout

    def copy(self, pairs):
        """Copy blocks, (from, to) each, in all layers."""
        for each in self if pairs else ():
            each.copy(pairs)


class BatchLayout:
    """Of a pass: where rows stand in their sequences, are written, and read.

    positions:  of the rows in their sequences, [1, N].
    last:       the last row of each sequence, a list.
    longest:    tokens of the longest sequence, S.
    """

    def __init__(self, spans, device=None):
        tables, self.before, counts = map(list, zip(*spans))
        self.size = tables[0].pool.block_size
        ends = [before + new for before, new in zip(self.before, counts)]
        self.longest, self.bounds = max(ends), [0, *accumulate(counts)]
        self.last = [bound - 1 for bound in self.bounds[1:]]
        most = max(len(each.blocks) for each in tables)
        blocks = torch.tensor([each.blocks + [0] * (most - len(each.blocks)) for each in tables], device=device)
        ends = torch.tensor(ends, device=device)[:, None]
        self.read = _slots(blocks, torch.arange(self.longest, device=device).minimum(ends - 1), self.size)  # [B, S]
        rows = [(i, before + j) for i, (before, new) in enumerate(zip(self.before, counts)) for j in range(new)]
        whose, positions = torch.tensor(rows, device=device).T
        self.positions, self.write = positions[None], self.read[whose, positions]
        self.runs = list(self._runs(counts))
        self._rows = {}

    def rows(self, groups):
        """Of tensors [blocks, G, block_size, d] as rows [-1, d]: those to write, [G N], and to read, [B G S]."""
        if groups not in self._rows:
            heads = torch.arange(groups, device=self.read.device)[:, None] * self.size
            write, read = (each + each // self.size * self.size * (groups - 1) for each in (self.write, self.read))
            self._rows[groups] = (write + heads).flatten(), (read[:, None] + heads).flatten()
        return self._rows[groups]

    def with_prefix(self, attend):
        """``attend`` for each sequence: q [1, H, N, d], k and v [B, G, S, d], to [1, H, N, e]."""

        def attend_each(q, k, v, **options):
            outs = []
            for sequences, rows, T in self.runs:
                before = self.before[sequences]
                S = max(before) + T
                queries = q[0, :, rows].unflatten(1, (-1, T)).transpose(0, 1)  # [B', H, T, d]
                out = attend_with_cache(before, attend, queries, k[sequences, :, :S], v[sequences, :, :S], **options)
                outs.append(out.transpose(0, 1).flatten(1, 2))
            return torch.cat(outs, dim=1)[None]

        return attend_each

    def _runs(self, counts):
        """Neighbors with as many queries: their slice of the sequences, of the rows, and how many queries."""
        first = 0
        for T, same in groupby(counts):
            last = first + len(list(same))
            yield slice(first, last), slice(self.bounds[first], self.bounds[last]), T
            first = last


def _slots(blocks, positions, size):
    """Slot indices of positions [B, S], by tables [B, n]."""
    return blocks.gather(1, positions // size) * size + positions % size
