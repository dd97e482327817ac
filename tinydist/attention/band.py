"""The band: which keys a query sees.

    causal, 3 queries       causal, window 2        window 2                3 queries, 5 keys, causal

        j 0 1 2 3 4             j 0 1 2 3 4             j 0 1 2 3 4             j 0 1 2 3 4
    p 0   x . . . .         p 0   x . . . .         p 0   x x . . .         p 2   x x x . .
      1   x x . . .           1   x x . . .           1   x x x . .           3   x x x x .
      2   x x x . .           2   . x x . .           2   . x x x .           4   x x x x x

The query in row i stands at p = i + keys - queries: the last query beside the last key, as when old keys come from a
cache. It sees key j where

    nearest <= p - j <= farthest        causal: nearest = 0; window w: farthest = w - 1, and nearest = 1 - w

so the pairs form a band along the diagonal, and tiles outside it need not be visited. A row may see nothing, as the
first ones do where causal queries outnumber the keys. Where the sequences of a batch follow pasts of different lengths,
each has a band of its own: p = i + past.

Sources: Beltagy et al. 2020, Longformer, section 3.1 (window); the lower right diagonal is that of FlashAttention from
its version 2.1, and of ``torch.nn.attention.bias.causal_lower_right``.
"""

import math

import torch

from ..rules import count, each_of, flag, many, takes, whole, within


@takes(queries=within(0, 2**31), keys=within(0, 2**31), causal=flag, past=each_of(whole))
class Band:
    """Of ``queries`` rows and ``keys`` columns.

    causal:  a query sees no key after itself.
    window:  and of the keys to a side only the nearest, itself included; None: all.
    past:    of each sequence, the keys before its first query; None: of all, those that queries do not stand beside.
    """

    def __init__(self, queries, keys, causal=False, window=None, past=None):
        if window is not None and not count(window):
            raise ValueError(f"attention: window must be an integer >= 1, or None, got {window!r}")
        if past is not None and max(past) + queries > keys:
            raise ValueError(f"attention: {queries} queries that follow {max(past)} keys do not fit {keys} keys")
        self.queries, self.keys = queries, keys
        self.offsets = [keys - queries] if past is None else list(past)
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
        """Who sees whom, bool [rows, columns], or [B, 1, rows, columns]. None: each query sees each key."""
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


def band_of(name, q, k, causal, window, past):
    """The band of queries [B, H, T, d] and keys [B, G, S, d]."""
    if past is not None and not (many(past) and len(past) == len(q)):
        raise ValueError(f"{name}: past must be of {len(q)} sequences, got {past!r}")
    return Band(q.shape[2], k.shape[2], causal, window, past)


def tiles(span, size):
    """The slices of ``size`` that cover ``span``, from a multiple of ``size`` on."""
    for start in range(span.start // size * size, span.stop, size):
        yield slice(start, min(start + size, span.stop))
