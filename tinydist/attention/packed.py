r"""Packed sequences: laid end to end in one row, without padding; each token sees its own sequence alone.

    lengths 3, 1, 2         padded: 9 places, 6 of use        packed: 6 places      cu_seqlens = 0, 3, 4, 6

                                  keys  0 1 2 3 4 5
                                  q 0   x                     causal: a band in each block on the diagonal, and nothing
                                    1   x x                   beside it. Flash attention visits no tile that touches
                                    2   x x x                 no block; the naive one masks all the scores
                                    3         x
                                    4           x
                                    5           x x

cu_seqlens are the bounds between sequences: the i-th has the tokens from cu_seqlens[i] on, up to cu_seqlens[i + 1]. As
many queries as keys in each, or, with bounds of their own for the keys, queries that follow a past (see ``Band``).

Costs, a head and forward, lengths n in a row of N:        naive 4 N^2 d FLOPs,        flash 4 d (sum of n^2), and what
is masked in the tiles that reach over a bound. Padded to the longest, it would be 4 d (sequences) (longest)^2.

Source: Krell, Kosec, Perez & Fitzgibbon 2021, Efficient Sequence Packing without Cross-contamination (arXiv
2107.02027); ``torch.nn.attention.varlen`` has the same on CUDA, and calls the bounds cu_seq_q and cu_seq_k.
"""

from bisect import bisect_left, bisect_right
from itertools import pairwise

import torch

from ..rules import each_of, finite, takes, whole
from .band import Band
from .flash import flash_over
from .groups import check_shapes
from .naive import attention


@takes(scale=finite)
def packed_attention(q, k, v, cu_seqlens, *, cu_seqlens_k=None, causal=False, window=None, scale=None):
    """Attention of each sequence alone, all scores written down: [B, H, T, e].

    q [B, H, T, d], k [B, G, S, d], v [B, G, S, e], with T and S the tokens of all sequences; B is 1 for one row.
    cu_seqlens:             their bounds, a list or tensor of whole numbers that rise from 0 to T.
    cu_seqlens_k:           of the keys, from 0 to S, of as many sequences; None: the same.
    causal, window, scale:  as in ``attention``, within a sequence.

    Raises ``ValueError`` for bounds, and as ``attention`` for what else does not fit.
    """
    band = packed_band("packed_attention", q, k, v, cu_seqlens, cu_seqlens_k, causal, window)
    mask = band.visible(slice(0, band.queries), slice(0, band.keys), q.device)
    return attention(q, k, v, mask=mask, scale=scale)


@takes(scale=finite)
def packed_flash_attention(
    q, k, v, cu_seqlens, *, cu_seqlens_k=None, causal=False, window=None, scale=None, tile=(128, 128)
):
    """The same tile by tile, as ``flash_attention``."""
    band = packed_band("packed_flash_attention", q, k, v, cu_seqlens, cu_seqlens_k, causal, window)
    return flash_over("packed_flash_attention", band, q, k, v, scale, tile)


class PackedBand:
    """Which keys a query sees: a ``Band`` for each sequence, and of them all what flash attention asks of one.

    bounds_q, bounds_k:  of the sequences, lists.
    causal, window:      within a sequence.
    """

    def __init__(self, bounds_q, bounds_k, causal=False, window=None):
        self.bounds_q, self.bounds_k = bounds_q, bounds_k
        self.queries, self.keys = bounds_q[-1], bounds_k[-1]
        lengths = ([stop - start for start, stop in pairwise(bounds)] for bounds in (bounds_q, bounds_k))
        self.bands = [Band(*each, causal, window) for each in zip(*lengths)]

    def keys_of(self, rows):
        """The columns, as a slice, from the first to the last that some query of these rows may see."""
        return self._reach(Band.keys_of, rows, self.bounds_q, self.bounds_k)

    def queries_of(self, columns):
        """The rows, as a slice, from the first to the last that may see some key of these columns."""
        return self._reach(Band.queries_of, columns, self.bounds_k, self.bounds_q)

    def visible(self, rows, columns, device=None):
        """Who sees whom, bool [rows, columns]. None: each query sees each key."""
        seen = torch.zeros(rows.stop - rows.start, columns.stop - columns.start, dtype=torch.bool, device=device)
        for i in _sequences(self.bounds_q, rows):
            of_rows, of_columns = _of(self.bounds_q, i, rows), _of(self.bounds_k, i, columns)
            if of_columns.start < of_columns.stop:
                block = self.bands[i].visible(of_rows, of_columns, device)
                place = seen[_moved(of_rows, self.bounds_q[i] - rows.start)]
                place = place[:, _moved(of_columns, self.bounds_k[i] - columns.start)]
                if block is None and place.shape == seen.shape:
                    return None
                place[:] = True if block is None else block
        return seen

    def _reach(self, of_band, span, bounds, others):
        spans = [_moved(of_band(self.bands[i], _of(bounds, i, span)), others[i]) for i in _sequences(bounds, span)]
        spans = [each for each in spans if each.start < each.stop]
        return slice(spans[0].start, spans[-1].stop) if spans else slice(0, 0)


def _sequences(bounds, span):
    """Those with a token in the span."""
    return range(bisect_right(bounds, span.start) - 1, bisect_left(bounds, span.stop))


def _of(bounds, i, span):
    """The span's part in sequence i, counted from the sequence's start."""
    return slice(max(span.start, bounds[i]) - bounds[i], min(span.stop, bounds[i + 1]) - bounds[i])


def _moved(span, by):
    return slice(span.start + by, span.stop + by)


def packed_band(name, q, k, v, cu_seqlens, cu_seqlens_k, causal, window):
    """What the bounds say, checked; ``name`` is whose errors they are."""
    check_shapes(name, q, k, v)
    bounds_q = _bounds(name, "cu_seqlens", cu_seqlens, q.shape[2])
    bounds_k = _bounds(name, "cu_seqlens_k", cu_seqlens if cu_seqlens_k is None else cu_seqlens_k, k.shape[2])
    if len(bounds_q) != len(bounds_k):
        sizes = f"{len(bounds_q) - 1} of queries, {len(bounds_k) - 1} of keys"
        raise ValueError(f"{name}: cu_seqlens and cu_seqlens_k must bound as many sequences, got {sizes}")
    return PackedBand(bounds_q, bounds_k, causal, window)


def _bounds(name, what, bounds, tokens):
    bounds = bounds.tolist() if isinstance(bounds, torch.Tensor) else bounds
    rising = each_of(whole, 2)(bounds) and all(start <= stop for start, stop in pairwise(bounds))
    if not rising or bounds[0] != 0 or bounds[-1] != tokens:
        raise ValueError(f"{name}: {what} must rise from 0 to the {tokens} tokens, got {bounds!r}")
    return list(bounds)
