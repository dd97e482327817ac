r"""Paged attention: queries attend to keys and values in place, block by block, through the block table.

    table of a sequence      7           2           5            keys [blocks, G, block_size, d]
                             |           |           |
    its queries           part 0      part 1      part 2          scores of one block, never of all
                              \         /          /
                                 merge ------> merge ---> finish  (see ``attention.online_softmax``)

Keys are not gathered into contiguous memory: the block table gives the address of each block. Here all sequences of a
batch advance one block at a time. The result equals attention over contiguous keys.

Costs what attention over S keys costs, and for each block a look into the table, and keys from another place: the
authors' kernel was 20 to 26 % slower than one over a row.

Source: Kwon et al. 2023, PagedAttention, sections 4.1 (equation 4) and 7.1.
"""

import math

import torch

from ..attention.flash import tile_scores, wide_of
from ..attention.groups import check_shapes, fold, unfold
from ..attention.mask import AttentionMask, tiles
from ..attention.online_softmax import finish, merge, nothing, part
from ..rules import each_of, finite, validate, whole


@validate(q=torch.Tensor, keys=torch.Tensor, values=torch.Tensor)
@validate(tables=each_of(each_of(whole)), offset=each_of(whole), scale=finite)
def paged_attention(q, keys, values, tables, offset, *, window=None, scale=None):
    """Attention of queries [B, H, T, d], which follow ``offset[b]`` tokens of sequence b: [B, H, T, e].

    keys, values:   [blocks, G, block_size, d] and e: of all sequences, those of the queries included.
    tables:         of each sequence its blocks, in order.
    window, scale:  as in ``attention``; each query sees itself, and what is before it.

    Raises ``ValueError`` for a table that is too short or names no block, and as ``attention`` for shapes.
    """
    size, blocks = _check(q, keys, tables, offset)
    check_shapes("paged_attention", q, keys[blocks[:, 0]], values[blocks[:, 0] % len(values)])
    H, G, wide = q.shape[1], keys.shape[1], wide_of(q)
    rows, band = slice(0, q.shape[2]), AttentionMask(q.shape[2], max(offset) + q.shape[2], True, window, offset)
    with torch.autocast(q.device.type, enabled=False):  # it would round the parts
        queries = fold(q.to(wide) * (1 / math.sqrt(q.shape[3]) if scale is None else float(scale)), G)
        state = nothing(queries, values.shape[3])
        for columns in tiles(band.keys_of(rows), size):
            block, filled = blocks[:, columns.start // size], columns.stop - columns.start
            k, v = (each[block, :, :filled].to(wide) for each in (keys, values))  # [B, G, block_size, d]
            state = merge(state, part(tile_scores(queries, k, band, rows, columns), v))
        out, _ = finish(state)
    return unfold(out, H).to(q.dtype)


def _check(q, keys, tables, offset):
    """The block size, and the tables as one tensor [B, n]; behind its end each repeats its first, which is masked."""
    if q.ndim != 4 or keys.ndim != 4:
        shapes = f"q {list(q.shape)}, keys {list(keys.shape)}"
        raise ValueError(f"paged_attention: expected [B, H, T, d] and [blocks, G, block_size, d], got {shapes}")
    if not len(q) == len(tables) == len(offset):
        got = f"{len(q)}, {len(tables)} and {len(offset)}"
        raise ValueError(f"paged_attention: queries, tables and offset must have the same batch size, got {got}")
    size = keys.shape[2]
    for b, (table, before) in enumerate(zip(tables, offset)):
        if len(table) * size < before + q.shape[2] or max(table) >= len(keys):
            raise ValueError(
                f"paged_attention: sequence {b} has {before} + {q.shape[2]} tokens in blocks of {size}, "
                f"of which there are {len(keys)}, got the table {list(table)}"
            )
    most = max(map(len, tables))
    return size, torch.tensor([[*each, *[each[0]] * (most - len(each))] for each in tables], device=keys.device)
