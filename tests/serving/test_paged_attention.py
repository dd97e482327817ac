"""Attention by way of tables: what attention over the keys in a row gives."""

import random

import pytest
import torch
from serving.sizes import block_sizes

import tinydist
from tinydist.attention import attention
from tinydist.serving import paged_attention

CLOSE = {torch.float64: dict(rtol=0, atol=1e-12), torch.float32: dict(rtol=0, atol=1e-5)}


def in_blocks(ends, block_size, heads, width, dtype, dice):
    """Rows [G, S, d] of each sequence, and the same in blocks that are handed out at random: rows, tables, blocks."""
    tables, number = [], sum(-(-end // block_size) for end in ends)
    free = dice.sample(range(number), number)
    for end in ends:
        tables.append([free.pop() for _ in range(-(-end // block_size))])
    generator = torch.Generator().manual_seed(number)
    blocks = torch.randn(number, heads, block_size, width, dtype=dtype, generator=generator)
    rows = [blocks[table].transpose(0, 1).flatten(1, 2)[:, :end] for table, end in zip(tables, ends)]
    return rows, tables, blocks


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("groups", [1, 2, 6])
@block_sizes(1, 3, 16, 32)
@pytest.mark.parametrize("tokens", [1, 7])
def test_as_over_keys_in_a_row(dtype, groups, block_size, tokens):
    dice = random.Random(f"{groups} {block_size} {tokens}")
    past = [dice.randint(0, 40) for _ in range(3)]
    both = in_blocks([each + tokens for each in past], block_size, groups, 4 + 5, dtype, dice)
    rows, tables, blocks = both
    q = torch.randn(3, 6, tokens, 4, dtype=dtype, generator=torch.Generator().manual_seed(2))
    for window in (None, 1, 5):
        found = paged_attention(q, blocks[..., :4], blocks[..., 4:], tables, past, window=window, scale=0.7)
        for b, row in enumerate(rows):
            k, v = row[None, ..., :4], row[None, ..., 4:]
            expected = attention(q[b : b + 1], k, v, causal=True, window=window, scale=0.7)
            torch.testing.assert_close(found[b : b + 1], expected, **CLOSE[dtype])


def test_blocks_before_a_window_are_not_touched():
    q, keys = torch.ones(1, 1, 1, 2), torch.ones(4, 1, 2, 2)
    keys[:3] = torch.nan
    assert paged_attention(q, keys, keys, [[0, 1, 2, 3]], [7], window=2).eq(1).all()


def test_beside_the_cache_one_block_is_held():
    """More tokens, and only the table is longer."""

    def peak(blocks):
        q, keys = torch.ones(1, 1, 8, 4), torch.ones(blocks, 1, 16, 4)
        given = q, keys, keys, [[*range(blocks)]], [16 * blocks - 8]
        return tinydist.launch(lambda: paged_attention(*given), 1).memory[0].peak

    assert peak(64) - peak(4) == 60 * 8


@pytest.mark.parametrize(
    "change, error",
    [
        (dict(tables=[[0, 1]]), r"queries, tables and offset must have the same batch size, got 2, 1 and 2"),
        (
            dict(tables=[[0, 1], [2]]),
            r"sequence 1 has 3 \+ 2 tokens in blocks of 4, of which there are 5, got .* \[2\]",
        ),
        (dict(tables=[[0, 5], [2, 3]]), r"sequence 0 has 3 \+ 2 tokens in blocks of 4, .* got the table \[0, 5\]"),
        (dict(keys=torch.ones(5, 4, 2)), r"expected \[B, H, T, d\] and \[blocks, G, block_size, d\], got q .* keys .*"),
        (
            dict(values=torch.ones(5, 2, 4, 2)),
            r"num_heads \(3\) must be divisible by num_kv_heads \(2\)",
        ),
    ],
)
def test_errors(change, error):
    given = dict(q=torch.ones(2, 3, 2, 2), keys=torch.ones(5, 1, 4, 2), values=torch.ones(5, 1, 4, 2))
    given |= dict(tables=[[0, 1], [2, 3]], offset=[3, 3])
    if "values" in change:
        change["keys"] = change["values"]
    with pytest.raises(ValueError, match="^paged_attention: " + error + "$"):
        paged_attention(**given | change)
