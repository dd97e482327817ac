"""Attention masks as bands along the diagonal: causal, sliding window, or offset by a cache.

    causal, 3 queries       causal, window 2        window 2                3 queries, 5 keys, causal

        j 0 1 2 3 4             j 0 1 2 3 4             j 0 1 2 3 4             j 0 1 2 3 4
    p 0   x . . . .         p 0   x . . . .         p 0   x x . . .         p 2   x x x . .
      1   x x . . .           1   x x . . .           1   x x x . .           3   x x x x .
      2   x x x . .           2   . x x . .           2   . x x x .           4   x x x x x

The query in row i has position p = i + keys - queries: the last query is aligned with the last key, as with keys from
a cache. It attends to key j where

    nearest <= p - j <= farthest        causal: nearest = 0; window w: farthest = w - 1, and nearest = 1 - w

so the pairs form a band along the diagonal, and tiles outside it need not be visited. A row may see nothing, as the
first ones do where causal queries outnumber the keys. Where the sequences of a batch follow pasts of different lengths,
each has a band of its own, with an offset: p = i + offset.

Sources: Beltagy et al. 2020, Longformer, section 3.1 (window); the lower right diagonal is that of FlashAttention from
its version 2.1, and of ``torch.nn.attention.bias.causal_lower_right``.
"""

import math

import torch

from ..rules import count, each_of, flag, many, validate, whole, within


@validate(queries=within(0, 2**31), keys=within(0, 2**31), causal=flag, offset=each_of(whole))
class AttentionMask:
    """Of ``queries`` rows and ``keys`` columns.

    causal:  a query sees no key after itself.
    window:  and of the keys to a side only the nearest, itself included; None: all.
    offset:  of each sequence, the position of its first query; None: of all, keys - queries.
    """

    def __init__(self, queries, keys, causal=False, window=None, offset=None):
        if window is not None and not count(window):
            raise ValueError(f"attention: window must be an integer >= 1, or None, got {window!r}")
        if offset is not None and max(offset) + queries > keys:
            raise ValueError(f"attention: offset ({max(offset)}) + queries ({queries}) exceeds keys ({keys})")
        self.queries, self.keys = queries, keys
        self.offsets = [keys - queries] if offset is None else list(offset)
        self.least, self.most = min(self.offsets), max(self.offsets)
        self.farthest = math.inf if window is None else min(window, queries + keys) - 1
        self.nearest = 0 if causal else -self.farthest

    def keys_of(self, rows):
        """The columns, as a slice, that some query of these rows may see."""
        first, last = rows.start + self.least, rows.stop - 1 + self.most
        return slice(max(0, first - self.farthest), min(self.keys, last - self.nearest + 1))

    def queries_of(self, columns):
        """The rows, as a slice, that may see some key of these columns."""
        first, last = columns.start - self.most, columns.stop - 1 - self.least
        return slice(max(0, first + self.nearest), min(self.queries, last + self.farthest + 1))

    def visible(self, rows, columns, device=None):
        """Which query sees which key, bool [rows, columns] or [B, 1, rows, columns]. None: each sees each."""
        smallest = rows.start + self.least - (columns.stop - 1)
        largest = rows.stop - 1 + self.most - columns.start
        if self.nearest <= smallest and largest <= self.farthest:
            return None
        offset = self.most
        if self.least < self.most:
            offset = torch.tensor(self.offsets, device=device)[:, None, None, None]
        p = torch.arange(rows.start, rows.stop, device=device)[:, None] + offset
        distance = p - torch.arange(columns.start, columns.stop, device=device)
        seen = distance >= self.nearest
        return seen if self.farthest == math.inf else seen & (distance <= self.farthest)


def mask_of(name, q, k, causal, window, offset):
    """The mask of queries [B, H, T, d] and keys [B, G, S, d]."""
    if offset is not None and not (many(offset) and len(offset) == len(q)):
        raise ValueError(f"{name}: offset must have an entry for each of {len(q)} sequences, got {offset!r}")
    return AttentionMask(q.shape[2], k.shape[2], causal, window, offset)


def tiles(span, size):
    """The slices of ``size`` that cover ``span``, from a multiple of ``size`` on."""
    for start in range(span.start // size * size, span.stop, size):
        yield slice(start, min(start + size, span.stop))
