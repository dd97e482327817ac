"""The paged cache: what a model computes with it is what it computes with a contiguous one."""

import random
from functools import partial
from itertools import product

import pytest
import torch
from rounding import between_orders
from serving.sizes import block_sizes

from tinydist.attention import (
    GroupedQueryAttention,
    LatentAttention,
    attention,
    flash_attention,
    flash_decoding,
    fused_attention,
)
from tinydist.serving import BlockPool, BlockTable, PagedCaches

KINDS = {"MHA": 6, "GQA": 2, "MQA": 1, "MLA": None}
kinds = pytest.mark.parametrize("kind", KINDS)
CLOSE = {torch.float64: dict(rtol=0, atol=1e-12), torch.float32: dict(rtol=0, atol=1e-5)}


class OneLayer:
    """All that ``PagedCaches`` asks of a model."""

    def __init__(self, kind, dtype=torch.float64, attend=attention):
        torch.manual_seed(0)
        if kind == "MLA":
            layer = LatentAttention(24, 6, latent=9, rotary_dim=2, head_dim=4, attend=attend)
        else:
            layer = GroupedQueryAttention(24, 6, KINDS[kind], rotary=100.0, attend=attend)
        self.layer = layer.to(dtype).requires_grad_(False)

    def caches(self, batch, capacity):
        return [self.layer.new_cache(batch, capacity)]

    def alone(self, x, pieces):
        """One sequence [T, D] with a contiguous cache."""
        cache = self.layer.new_cache(1, len(x))
        return torch.cat([self.layer(piece[None], cache=cache)[0] for piece in x.split(pieces)])


class InBlocks:
    """Sequences x, [T, D] each, that go through a layer pass by pass."""

    def __init__(self, model, sequences, block_size, blocks=None):
        blocks = blocks or sum(-(-len(x) // block_size) for x in sequences)
        self.model, self.sequences, self.pool = model, sequences, BlockPool(blocks, block_size)
        self.caches = PagedCaches(model, self.pool)
        self.tables = [BlockTable(self.pool) for _ in sequences]
        self.outs = [[] for _ in sequences]

    def compute(self, counts):
        """Of each sequence so many tokens more, index -> count; those with as many stand together."""
        spans, rows, order = [], [], sorted(counts, key=counts.get)
        for i in order:
            past = self.tables[i].length
            self.caches.copy(self.tables[i].allocate_slots(counts[i]))
            spans.append((self.tables[i], past, counts[i]))
            rows.append(self.sequences[i][past : past + counts[i]])
        self.caches.lay_out(spans)
        out = self.model.layer(torch.cat(rows)[None], cache=self.caches[0])[0]
        for i, each in zip(order, out.split([counts[i] for i in order])):
            self.outs[i].append(each)
        return out

    def found(self):
        return [torch.cat(each) for each in self.outs]


def sequences(lengths, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(length, 24, dtype=dtype, generator=generator) for length in lengths]


def compute_all(served, dice):
    """In passes of some sequences each, by pieces of random length."""
    while True:
        left = {i: len(x) - served.tables[i].length for i, x in enumerate(served.sequences)}
        left = {i: tokens for i, tokens in left.items() if tokens}
        if not left:
            return
        some = dice.sample(sorted(left), dice.randint(1, len(left)))
        served.compute({i: min(left[i], dice.choice([1, 1, 2, 7])) for i in some})


@kinds
@pytest.mark.parametrize("dtype, block_size", [*product([torch.float64], [1, 2, 3, 32]), (torch.float32, 16)], ids=str)
def test_in_blocks_and_pieces_as_in_a_row(kind, dtype, block_size):
    dice = random.Random(f"{kind} {block_size}")
    model, given = OneLayer(kind, dtype), sequences([dice.randint(1, 33) for _ in range(4)], dtype)
    served = InBlocks(model, given, block_size)
    compute_all(served, dice)
    for x, found in zip(given, served.found()):
        torch.testing.assert_close(found, model.alone(x, len(x)), **CLOSE[dtype])


@pytest.mark.exhaustive
@kinds
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("block_size", range(1, 33))
def test_all_block_sizes_and_windows(kind, dtype, window, block_size):
    for trial in range(3):
        dice = random.Random(f"{kind} {block_size} {trial}")
        model = OneLayer(kind, dtype, attend=partial(attention, window=window))
        served = InBlocks(model, sequences([dice.randint(1, 100) for _ in range(8)], dtype), block_size)
        compute_all(served, dice)
        for x, found in zip(served.sequences, served.found()):
            torch.testing.assert_close(found, model.alone(x, len(x)), **CLOSE[dtype])


@kinds
@pytest.mark.parametrize("attend", [attention, partial(flash_attention, tile=(2, 3)), flash_decoding, fused_attention])
def test_windows_whatever_attends(kind, attend):
    model, given = OneLayer(kind, attend=partial(attend, window=5)), sequences([11, 4, 19])
    served = InBlocks(model, given, 4)
    compute_all(served, random.Random(0))
    for x, found in zip(given, served.found()):
        expected = OneLayer(kind).layer(x[None], causal=True, window=5)[0]
        torch.testing.assert_close(found, expected, **CLOSE[torch.float64])


@kinds
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("window", [None, 5])
@block_sizes(4)
def test_bit_for_bit_where_the_shapes_are_the_same(kind, dtype, window, block_size):
    """Prompts of 7, then token by token: the same rows meet as many keys.

    Not MLA: the absorbed queries of a pass are one product, and those of a batch are one product for each sequence.
    """
    model, B, T = OneLayer(kind, dtype, attend=partial(attention, window=window)), 3, 12
    x = torch.stack(sequences([T] * B, dtype))
    served, cache = InBlocks(model, list(x), block_size), model.layer.new_cache(B, T)
    magnitudes = magnitudes_in(model.layer.out)
    for piece in x.split([7, 1, 1, 1, 1, 1], dim=1):
        expected = model.layer(piece.contiguous(), cache=cache).flatten(0, 1)
        found = served.compute(dict.fromkeys(range(B), piece.shape[1]))
        if kind == "MLA":
            terms = 4 + 11 + T + 9 + 24  # of absorbed queries, scores, mixtures, values, and of `out`
            atol = between_orders(dtype, terms, max(magnitudes))
            torch.testing.assert_close(found, expected, rtol=0, atol=atol)
        else:
            assert torch.equal(found, expected)


def magnitudes_in(linear):
    """A list that grows: of each call, the largest sum of magnitudes that is one of its outputs."""
    found = []
    linear.register_forward_pre_hook(lambda _, inputs: found.append((inputs[0].abs() @ linear.weight.abs().T).max()))
    return found


def test_what_is_gathered_are_the_rows_of_a_contiguous_cache():
    x, model = sequences([9, 4]), OneLayer("GQA")
    served, cache = InBlocks(model, x, 4, blocks=5), model.layer.new_cache(2, 10)
    served.compute({0: 9, 1: 4})
    model.layer(torch.nn.utils.rnn.pad_sequence(x, batch_first=True), cache=cache, counts=[9, 4])
    new = torch.randn(2, 2, 2, 1, 4, dtype=torch.float64)  # keys and values of two sequences
    assert [table.allocate_slots(1) for table in served.tables] == [[], []]
    served.caches.lay_out([(served.tables[0], 9, 1), (served.tables[1], 4, 1)])
    found_each, expected_each = served.caches[0].keep(*new.permute(0, 3, 2, 1, 4)), cache.keep(*new)
    for found, expected in zip(found_each, expected_each):
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1, :, :5], expected[1, :, :5])
        assert torch.equal(found[1, :, 5:], found[1, :, 4:5].expand(-1, 5, -1))  # its own last, which is masked


def test_what_others_left_in_a_block_is_never_read():
    model, (first, second) = OneLayer("GQA"), sequences([8, 6])
    served = InBlocks(model, [first * torch.nan, second], 4, blocks=2)
    served.compute({0: 8})
    served.tables[0].clear()
    served.compute({1: 5})
    served.compute({1: 1})
    torch.testing.assert_close(served.found()[1], model.alone(second, 6), **CLOSE[torch.float64])


def test_a_copy_on_write_leaves_the_other_as_it_was():
    model, (prompt, mine, yours) = OneLayer("GQA"), sequences([6, 3, 3])
    served = InBlocks(model, [torch.cat([prompt, mine]), torch.cat([prompt, yours])], 4, blocks=5)
    served.compute({0: 6})
    served.tables[1] = served.tables[0].fork()
    for _ in range(3):
        served.compute({0: 1, 1: 1})
    for i in range(2):
        expected = model.alone(served.sequences[i], 9)
        torch.testing.assert_close(torch.cat(served.outs[i])[-3:], expected[-3:], **CLOSE[torch.float64])
    shared = set(served.tables[0].blocks) & set(served.tables[1].blocks)
    assert shared == {served.tables[0].blocks[0]} and len(served.pool.free) == 0


def test_sequences_with_as_many_queries_are_one_call():
    calls = []
    model = OneLayer("GQA", attend=lambda *qkv, **options: calls.append(options) or attention(*qkv, **options))
    served = InBlocks(model, sequences([9, 5, 7, 8]), 4)
    served.compute({0: 8, 1: 3, 2: 5, 3: 3})
    calls.clear()
    served.compute({0: 1, 1: 1, 2: 1, 3: 4})
    assert calls == [dict(causal=True, offset=[8, 3, 5]), dict(causal=True)]


def test_bytes_are_those_of_the_blocks():
    assert PagedCaches(OneLayer("GQA"), BlockPool(5, 16)).nbytes == 5 * 16 * (2 * 2 * 4 * 8)
    assert PagedCaches(OneLayer("MLA"), BlockPool(5, 16)).nbytes == 5 * 16 * (9 + 2) * 8


def test_rows_must_be_those_of_the_pass():
    served = InBlocks(OneLayer("GQA"), sequences([6]), 4)
    served.compute({0: 3})
    error = r"^PagedKVCache: the pass has rows \[1, 2, 3, 4\] and no counts, got keys \[1, 2, 2, 4\], values "
    with pytest.raises(ValueError, match=error):
        served.caches[0].keep(*torch.zeros(2, 1, 2, 2, 4).double())


def test_windows_are_seen_and_not_smaller_than_a_block():
    model = OneLayer("GQA")
    model.layer.window, x = 5, torch.randn(9, 24, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"^PagedCaches: block_size \(16\) exceeds a layer's window \(5\)$"):
        PagedCaches(model, BlockPool(4, 16))
    paged = InBlocks(model, [x], 4)
    for count in (6, 1, 1, 1):
        paged.compute({0: count})
    torch.testing.assert_close(torch.cat(paged.outs[0]), model.alone(x, [6, 1, 1, 1]), **CLOSE[torch.float64])
