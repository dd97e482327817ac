r"""Packed sequences (varlen attention): concatenated without padding; each token attends only to its own sequence.

    lengths 3, 1, 2         padded: 9 places, 6 of use        packed: 6 places      cu_seqlens = 0, 3, 4, 6

                                  keys  0 1 2 3 4 5
                                  q 0   x                     causal: a band in each block on the diagonal, and nothing
                                    1   x x                   beside it. Flash attention visits no tile that touches
                                    2   x x x                 no block; the naive one masks all the scores
                                    3         x
                                    4           x
                                    5           x x

cu_seqlens are the bounds between sequences: the i-th has the tokens from cu_seqlens[i] on, up to cu_seqlens[i + 1]. As
many queries as keys in each, or, with bounds of their own for the keys, queries that follow a prefix.

Costs per head, forward, lengths n packed into N:          naive 4 N^2 d FLOPs,        flash 4 d (sum of n^2), and what
is masked in the tiles that reach over a bound. Padded to the longest, it would be 4 d (sequences) (longest)^2.

Source: Krell, Kosec, Perez & Fitzgibbon 2021, Efficient Sequence Packing without Cross-contamination (arXiv
2107.02027); ``torch.nn.attention.varlen`` has the same on CUDA, and calls the bounds cu_seq_q and cu_seq_k.
"""

from functools import cached_property
from itertools import pairwise

import torch

from ..rules import each_of, finite, validate, whole
from .flash import flash_over
from .groups import check_shapes
from .mask import AttentionMask
from .naive import attention


@validate(scale=finite)
def packed_attention(q, k, v, cu_seqlens, *, cu_seqlens_k=None, causal=False, window=None, scale=None):
    """Attention within each packed sequence, all scores materialized: [B, H, T, e].

    q [B, H, T, d], k [B, G, S, d], v [B, G, S, e], with T and S the tokens of all sequences; B is 1 for one row.
    cu_seqlens:             their bounds, a list or tensor of whole numbers that rise from 0 to T.
    cu_seqlens_k:           of the keys, from 0 to S, of as many sequences; None: the same.
    causal, window, scale:  as in ``attention``, within a sequence.

    Raises ``ValueError`` for bounds, and as ``attention`` for what else does not fit.
    """
    band = packed_mask("packed_attention", q, k, v, cu_seqlens, cu_seqlens_k, causal, window)
    mask = band.visible(slice(0, band.queries), slice(0, band.keys), q.device)
    return attention(q, k, v, mask=mask, scale=scale)


@validate(scale=finite)
def packed_flash_attention(
    q, k, v, cu_seqlens, *, cu_seqlens_k=None, causal=False, window=None, scale=None, tile=(128, 128)
):
    """The same tile by tile, as ``flash_attention``."""
    band = packed_mask("packed_flash_attention", q, k, v, cu_seqlens, cu_seqlens_k, causal, window)
    return flash_over("packed_flash_attention", band, q, k, v, scale, tile)


class PackedMask:
    """Which keys a query sees, with all that flash attention asks of an ``AttentionMask``.

    bounds_q, bounds_k:  of the sequences, lists.
    causal, window:      within a sequence.
    """

    def __init__(self, bounds_q, bounds_k, causal=False, window=None):
        self.bounds_q, self.bounds_k, self.causal, self.window = bounds_q, bounds_k, causal, window
        self.queries, self.keys = bounds_q[-1], bounds_k[-1]

    @cached_property
    def seen(self):
        """Of each query (start, stop) of the keys that it sees."""
        found = []
        for (first_q, stop_q), (first_k, stop_k) in zip(pairwise(self.bounds_q), pairwise(self.bounds_k)):
            alone = AttentionMask(stop_q - first_q, stop_k - first_k, self.causal, self.window)
            each = (alone.keys_of(slice(row, row + 1)) for row in range(alone.queries))
            found += [(first_k + keys.start, first_k + keys.stop) for keys in each]
        return found

    def keys_of(self, rows):
        """The columns, as a slice, from the first to the last that some query of these rows may see."""
        seen = [each for each in self.seen[rows] if each[0] < each[1]]
        return slice(seen[0][0], seen[-1][1]) if seen else slice(0, 0)

    def queries_of(self, columns):
        """The rows, as a slice, from the first to the last that may see some key of these columns."""
        rows = [i for i, (a, b) in enumerate(self.seen) if max(a, columns.start) < min(b, columns.stop)]
        return slice(rows[0], rows[-1] + 1) if rows else slice(0, 0)

    def visible(self, rows, columns, device=None):
        """Which query sees which key, bool [rows, columns]. None: each sees each."""
        if all(start <= columns.start and columns.stop <= stop for start, stop in self.seen[rows]):
            return None
        start, stop = torch.tensor(self.seen[rows], device=device).T[..., None]  # [rows, 1] each
        keys = torch.arange(columns.start, columns.stop, device=device)
        return (start <= keys) & (keys < stop)


def packed_mask(name, q, k, v, cu_seqlens, cu_seqlens_k, causal, window):
    """What the bounds say, checked; ``name`` is whose errors they are."""
    check_shapes(name, q, k, v)
    bounds_q = _bounds(name, "cu_seqlens", cu_seqlens, q.shape[2])
    bounds_k = _bounds(name, "cu_seqlens_k", cu_seqlens if cu_seqlens_k is None else cu_seqlens_k, k.shape[2])
    if len(bounds_q) != len(bounds_k):
        sizes = f"{len(bounds_q) - 1} of queries, {len(bounds_k) - 1} of keys"
        raise ValueError(f"{name}: cu_seqlens and cu_seqlens_k must describe the same number of sequences, got {sizes}")
    return PackedMask(bounds_q, bounds_k, causal, window)


def _bounds(name, what, bounds, tokens):
    bounds = bounds.tolist() if isinstance(bounds, torch.Tensor) else bounds
    rising = each_of(whole, 2)(bounds) and all(start <= stop for start, stop in pairwise(bounds))
    if not rising or bounds[0] != 0 or bounds[-1] != tokens:
        raise ValueError(f"{name}: {what} must be non-decreasing from 0 to the {tokens} tokens, got {bounds!r}")
    return list(bounds)
