r"""Flash-decoding: for few queries and many keys, the keys are split across SMs and the partial results are merged.

    keys        0 .. S/p       .. 2S/p        ..          S
                   |             |            |           |
    processors   part          part         part         part        each reads its keys and values, at the same time
                     \          /              \          /
                      merge ----                merge ----           2 + e values from each: maximum, sum, output
                           \_____________________/
                                    merge ---> finish

Flash attention runs one thread block per head and tile of queries. A decode step has one query, so one sequence with
8 KV heads occupies 8 of an A100's 108 SMs. With the keys split in p there are 8 p thread blocks, each 1 / p as long.
The result is exact: partial results over different keys merge in any order (see ``online_softmax``), even if the keys
are on different ranks.

Costs per head: the FLOPs and bytes of decoding, and p (2 + e) elements per query to write, read and merge.

Source: Dao, Haziza, Massa & Sizov, Flash-Decoding for long-context inference, PyTorch's blog, October 2023
(pytorch.org/blog/flash-decoding).
"""

import math
from functools import reduce
from itertools import pairwise

import torch

from ..rules import count, finite, validate
from .flash import tile_scores, wide_of
from .groups import check_shapes, fold, unfold
from .mask import mask_of
from .online_softmax import finish, merge, nothing, part


@validate(scale=finite, splits=count)
def flash_decoding(q, k, v, *, causal=False, window=None, offset=None, scale=None, splits=8):
    """What ``attention(q, k, v)`` gives: [B, H, T, e]. For few queries: all scores of a split are held at once.

    q [B, H, T, d], k [B, G, S, d], v [B, G, S, e]; causal, window, offset, scale: as in ``attention``.
    splits:  of the keys that are seen, as equal as can be; fewer where there are fewer keys.
    """
    check_shapes("flash_decoding", q, k, v)
    H, G, wide = q.shape[1], k.shape[1], wide_of(q)
    rows, band = slice(0, q.shape[2]), mask_of("flash_decoding", q, k, causal, window, offset)
    with torch.autocast(q.device.type, enabled=False):  # it would round the parts
        queries = fold(q.to(wide) * (1 / math.sqrt(q.shape[3]) if scale is None else float(scale)), G)
        parts = [nothing(queries, v.shape[3])]
        for columns in split(band.keys_of(rows), splits):  # at the same time, each by a processor of its own
            scores = tile_scores(queries, k[:, :, columns].to(wide), band, rows, columns)
            parts.append(part(scores, v[:, :, columns].to(wide)))
        out, _ = finish(reduce(merge, parts))
    return unfold(out, H).to(q.dtype)


def split(keys, splits):
    """The slices of a slice: at most so many, as equal as can be."""
    length = max(0, keys.stop - keys.start)
    splits = max(1, min(splits, length))
    starts = [keys.start + length * i // splits for i in range(splits + 1)]
    return [slice(start, stop) for start, stop in pairwise(starts) if start < stop]
