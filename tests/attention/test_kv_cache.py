"""The KV cache: what it holds, where, and its bytes: the formula, the ledger's, and the published figures."""

from functools import partial

import pytest
import torch

import tinydist
from tinydist.attention import (
    PUBLISHED,
    GroupedQueryAttention,
    KVCache,
    attention,
    bytes_per_token,
    flash_attention,
    flash_decoding,
)
from tinydist.attention.kv_cache import attend_with_cache

DOUBLE = dict(rtol=0, atol=1e-12)
GiB = 2**30


def random(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def module(kv_heads=2):
    torch.manual_seed(0)
    return GroupedQueryAttention(24, 6, kv_heads, rotary=100.0).double()


def new_cache(batch, capacity=16, kv_heads=2):
    return KVCache(batch, kv_heads, capacity, 4, torch.float64)


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("pieces", [[9], [1] * 9, [4, 1, 1, 1, 2], [5, 4]])
def test_pieces_with_a_cache_are_the_whole_without(kv_heads, pieces):
    layer, x = module(kv_heads), random(3, 9, 24)
    cache = new_cache(3, capacity=9, kv_heads=kv_heads)
    found = torch.cat([layer(piece, cache=cache) for piece in x.split(pieces, dim=1)], dim=1)
    torch.testing.assert_close(found, layer(x, causal=True), **DOUBLE)
    assert cache.lengths == [9, 9, 9]


def test_sequences_of_different_lengths():
    """Rows of 5, 2, 0 and 3 real tokens, then one more each, then two: each as if it were alone."""
    layer, counts, alone = module(), [5, 2, 0, 3], []
    first, second, third = random(4, 5, 24), random(4, 1, 24), random(4, 2, 24)
    cache = new_cache(4)
    layer(first, cache=cache, counts=counts)
    assert cache.lengths == counts
    found = torch.cat([layer(second, cache=cache), layer(third, cache=cache)], dim=1)
    assert cache.lengths == [8, 5, 3, 6]
    for row, count in enumerate(counts):
        real = torch.cat([first[row, :count], second[row], third[row]])
        alone.append(layer(real[None], causal=True)[0, -3:])
    torch.testing.assert_close(found, torch.stack(alone), **DOUBLE)


@pytest.mark.parametrize("past", [[0, 0, 0], [3, 3, 3], [4, 0, 2]])
@pytest.mark.parametrize("tokens", [1, 5])
def test_behind_a_past_is_what_the_mask_says(past, tokens):
    cache, q, new = new_cache(3), random(3, 6, tokens, 4), random(2, 3, 2, tokens, 4)
    cache.append(*random(2, 3, 2, 4, 4), counts=past)
    for attend in (attention, partial(flash_attention, tile=(2, 3)), flash_decoding):
        cache.lengths = past
        k, v, visible = cache.append(*new)
        expected = attention(q, k, v, mask=visible)
        torch.testing.assert_close(attend_with_cache(past, attend, q, k, v), expected, **DOUBLE)


def test_sequences_of_different_lengths_cost_as_many_calls_as_equal_ones():
    """Each sequence alone would be as many calls as there are sequences."""
    calls, layer = [], module()
    layer.attend = lambda *qkv, **options: calls.append(options) or attention(*qkv, **options)
    for lengths in ([3] * 5, [3, 1, 2, 0, 4]):
        cache = new_cache(5)
        cache.lengths = lengths
        layer(random(5, 1, 24), cache=cache)
    assert calls == [dict(causal=True), dict(causal=True, offset=[3, 1, 2, 0, 4])]


def test_a_past_is_of_each_sequence():
    q, k = random(2, 1, 3, 4), random(2, 1, 5, 4)
    for attend in (attention, flash_attention, flash_decoding):
        with pytest.raises(ValueError, match=rf"^{attend.__name__}: offset must have an entry for each of 2"):
            attend(q, k, k, offset=[1])


def test_a_prompt_passes_through_the_cache_as_attend_computes():
    """In tiles, not even a mask of N x N is held."""
    N = 512

    def prefill(attend):
        layer = GroupedQueryAttention(8, 2, attend=attend)
        with torch.no_grad():
            layer(torch.ones(1, N, 8), cache=KVCache(1, 2, N, 4))

    def in_tiles(*qkv, **options):
        return flash_attention(*qkv, tile=(64, 64), **options)

    in_tiles, naive = (tinydist.launch(prefill, 1, each).memory[0].peak for each in (in_tiles, attention))
    scores = 2 * N * N * 4
    assert in_tiles < N * N < scores < naive


def test_what_padding_says_is_never_read():
    layer, x, more = module(), random(2, 4, 24), random(2, 1, 24)
    changed = x.clone()
    changed[1, 2:] = 1e6
    found = []
    for each in (x, changed):
        cache = new_cache(2)
        layer(each, cache=cache, counts=[4, 2])
        found.append(layer(more, cache=cache))
    assert torch.equal(*found)


def test_keys_are_views_up_to_the_longest_sequence():
    cache = new_cache(2)
    keys, values, visible = cache.append(random(2, 2, 3, 4), random(2, 2, 3, 4), counts=[3, 1])
    assert keys.shape == values.shape == (2, 2, 3, 4)
    assert (keys.data_ptr(), values.data_ptr()) == (cache.keys.data_ptr(), cache.values.data_ptr())
    assert visible.shape == (2, 1, 3, 3) and torch.equal(visible[0, 0], torch.ones(3, 3).tril().bool())
    keys, _, visible = cache.append(random(2, 2, 1, 4), random(2, 2, 1, 4))
    assert keys.shape == (2, 2, 4, 4)
    assert visible.int().tolist() == [[[[1, 1, 1, 1]]], [[[1, 1, 0, 0]]]]


@pytest.mark.parametrize("name", PUBLISHED)
def test_bytes_measured_are_the_formula(name):
    layers, kv_heads, head_dim = PUBLISHED[name]
    batch, capacity = 2, 4096

    def program():
        return [KVCache(batch, kv_heads, capacity, head_dim, torch.float16) for _ in range(layers)]

    run = tinydist.launch(program, 1, fake=True)
    expected = batch * capacity * bytes_per_token(layers, kv_heads, head_dim)
    assert run.memory[0].peak == sum(cache.nbytes for cache in run.results[0]) == expected


@pytest.mark.parametrize(
    "name, nbytes",  # a token, fp16
    [
        ("Llama 2 7B", 524_288),
        ("Llama 2 13B", 819_200),
        ("Llama 2 70B", 327_680),
        ("Llama 3 8B", 131_072),
        ("Llama 3 70B", 327_680),
        ("Llama 3.1 405B", 516_096),
        ("OPT 13B", 800 * 1024),  # "800 KB", PagedAttention, section 3
    ],
)
def test_published_figures(name, nbytes):
    assert bytes_per_token(*PUBLISHED[name]) == nbytes


def test_figures_of_whole_sequences():
    assert 4096 * bytes_per_token(*PUBLISHED["Llama 2 7B"]) == 2 * GiB
    assert 8192 * bytes_per_token(*PUBLISHED["Llama 3 8B"]) == 1 * GiB
    assert bytes_per_token(*PUBLISHED["Llama 3 8B"], torch.float32) == 2 * bytes_per_token(*PUBLISHED["Llama 3 8B"])
    assert 2048 * bytes_per_token(*PUBLISHED["OPT 13B"]) == pytest.approx(1.6 * GiB, rel=0.03)


def test_a_decode_step_holds_no_copy_of_the_cache():
    B, G, C, d = 2, 2, 4000, 16

    def step():
        layer, cache = GroupedQueryAttention(G * d, G), KVCache(B, G, C, d)
        cache.lengths = [C - 1] * B
        with torch.no_grad():
            layer(torch.ones(B, 1, G * d), cache=cache)
        return cache.nbytes + sum(each.nbytes for each in layer.parameters())

    run = tinydist.launch(step, 1)
    scores, a_copy = B * G * C * 4, B * G * C * d * 4
    more = run.memory[0].peak - run.results[0]
    assert 2 * scores <= more < 5 * scores < a_copy


def appended(capacity=4, used=(), k=(2, 2, 3, 4), v=(2, 2, 3, 4), counts=None):
    cache = new_cache(2, capacity)
    cache.lengths = list(used) or cache.lengths
    cache.append(torch.ones(k).double(), torch.ones(v).double(), counts)


@pytest.mark.parametrize(
    "arguments, error",
    [
        (dict(used=(0, 2)), r"KVCache: sequence 1 has 2 tokens; 3 more exceed capacity \(4\)"),
        (dict(k=(1, 2, 3, 4)), r"KVCache: holds \[2, 2, tokens, 4\], got keys \[1, 2, 3, 4\], values \[2, 2, 3, 4\]"),
        (dict(v=(2, 2, 2, 4)), r"KVCache: holds \[2, 2, tokens, 4\], got keys \[2, 2, 3, 4\], values \[2, 2, 2, 4\]"),
        (dict(counts=[4, 0]), r"KVCache: counts must be 2 integers from 0 to 3, got \[4, 0\]"),
        (dict(counts=[1]), r"KVCache: counts must be 2 integers from 0 to 3, got \[1\]"),
    ],
)
def test_errors(arguments, error):
    with pytest.raises(ValueError, match="^" + error + "$"):
        appended(**arguments)
