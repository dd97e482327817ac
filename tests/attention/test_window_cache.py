"""The cache of a layer with a sliding window: values are those of masked attention, and bytes are exact."""

from functools import partial

import pytest
import torch

import tinydist
from tinydist.attention import (
    WINDOWED,
    Decoder,
    DecoderConfig,
    GroupedQueryAttention,
    KVCache,
    WindowKVCache,
    attention,
    bytes_per_sequence,
    bytes_per_token,
    flash_attention,
    generate,
    generate_without_cache,
)

DOUBLE = dict(rtol=0, atol=1e-12)


def random(*shape, seed=1):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def module(window, attend=attention):
    torch.manual_seed(0)
    return GroupedQueryAttention(24, 6, 2, rotary=100.0, window=window, attend=attend).double()


def masked(layer, x, window):
    """By a mask alone, without the module's own window."""
    layer.window, layer.attend = None, attention
    T = x.shape[1]
    distance = torch.arange(T)[:, None] - torch.arange(T)
    return layer(x, mask=(distance >= 0) & (distance < window))


@pytest.mark.parametrize("attend", [attention, partial(flash_attention, tile=(2, 3))])
@pytest.mark.parametrize("window", [1, 2, 4, 9, 20])
@pytest.mark.parametrize("pieces", [[9], [1] * 9, [4, 1, 1, 1, 2], [5, 4], [2, 7]])
def test_pieces_with_a_ring_are_masked_attention(window, pieces, attend):
    layer, x = module(window, attend), random(3, 9, 24)
    cache = WindowKVCache(3, 2, window, 4, torch.float64)
    found = torch.cat([layer(piece, cache=cache) for piece in x.split(pieces, dim=1)], dim=1)
    torch.testing.assert_close(found, masked(layer, x, window), **DOUBLE)
    assert cache.lengths == [9, 9, 9]


@pytest.mark.parametrize("window", [1, 3, 4])
def test_sequences_of_different_lengths_are_each_as_if_alone(window):
    """Rows of 5, 2, 0 and 3 real tokens; then one more each, but for one row; then three."""
    layer, alone = module(window), module(window)
    tokens = random(4, 9, 24)
    cache = WindowKVCache(4, 2, window, 4, torch.float64)
    pieces = [(5, [5, 2, 0, 3]), (1, [1, 1, 1, 0]), (3, [3, 3, 1, 3])]
    real, results = [[] for _ in range(4)], [[] for _ in range(4)]
    start = 0
    for T, counts in pieces:
        piece = tokens[:, start : start + T]
        out = layer(piece, cache=cache, counts=counts)
        for row, count in enumerate(counts):
            real[row].append(piece[row, :count])
            results[row].append(out[row, :count])
        start += T
    for row in range(4):
        expected = masked(alone, torch.cat(real[row])[None], window)[0]
        torch.testing.assert_close(torch.cat(results[row]), expected, **DOUBLE)
    assert cache.lengths == [9, 6, 2, 6]


def test_a_plain_cache_gives_the_same():
    layer, x = module(3), random(2, 7, 24)
    plain, ring = KVCache(2, 2, 7, 4, torch.float64), WindowKVCache(2, 2, 3, 4, torch.float64)
    for piece in x.split([4, 1, 1, 1], dim=1):
        torch.testing.assert_close(layer(piece, cache=plain), layer(piece, cache=ring), **DOUBLE)


def test_what_append_says_is_seen():
    ring = WindowKVCache(2, 1, 3, 4, torch.float64)
    _, _, visible = ring.append(*random(2, 2, 1, 4, 4), counts=[4, 1])
    assert torch.equal(visible[0, 0], torch.ones(4, 4).tril().triu(-2).bool())
    keys, _, visible = ring.append(*random(2, 2, 1, 1, 4))
    assert keys.shape == (2, 1, 3, 4) and visible[:, 0, 0].tolist() == [[True, True, True], [True, True, False]]


def test_a_step_is_a_view_of_the_ring():
    ring = WindowKVCache(1, 1, 3, 4)
    for _ in range(5):
        keys, values, _ = ring.append(torch.ones(1, 1, 1, 4), torch.ones(1, 1, 1, 4))
        assert (keys.data_ptr(), values.data_ptr()) == (ring.keys.data_ptr(), ring.values.data_ptr())


def test_unused_slots_that_hold_nan_are_not_read():
    layer, x = module(4), random(2, 2, 24)
    ring = WindowKVCache(2, 2, 4, 4, torch.float64)
    for each in ring.tensors:
        each.fill_(torch.nan)
    assert not layer(x[:, :1], cache=ring).isnan().any()
    assert not layer(x, cache=ring).isnan().any()


@pytest.mark.parametrize("windows", [(3,), (3, None), (2, 2, None)])
def test_a_decoder_generates_the_same_with_windows_by_layer(windows):
    torch.manual_seed(0)
    model = Decoder(DecoderConfig(vocab_size=64, layers=4, windows=windows)).double()
    prompts = [torch.randint(64, (length,)) for length in (5, 2, 11)]
    alone = [generate_without_cache(model, [prompt], 8) for prompt in prompts]
    assert torch.equal(generate(model, prompts, 8), torch.cat(alone))
    kinds = [type(cache) for cache in model.caches(1, 100)]
    assert kinds == [KVCache if windows[layer % len(windows)] is None else WindowKVCache for layer in range(4)]


@pytest.mark.parametrize("name", WINDOWED)
@pytest.mark.parametrize("tokens", [64, 1024, 131_072])
def test_bytes_are_those_of_the_ledger(name, tokens):
    windows, kv_heads, head_dim = WINDOWED[name]

    def program():
        sizes = [tokens if window is None else min(window, tokens) for window in windows]
        return [WindowKVCache(1, kv_heads, size, head_dim, torch.float16) for size in sizes]

    run = tinydist.launch(program, 1, fake=True)
    assert run.memory[0].peak == bytes_per_sequence(tokens, *WINDOWED[name])


def test_figures():
    """Without windows it is bytes_per_token; Gemma 3 27B keeps all tokens in 10 layers, gpt-oss in 18."""
    assert bytes_per_sequence(100, [None] * 32, 8, 128) == 100 * bytes_per_token(32, 8, 128)
    kept = {name: windows.count(None) for name, (windows, *_) in WINDOWED.items()}
    assert kept == {"Gemma 3 27B": 10, "gpt-oss 120B": 18}
    assert bytes_per_sequence(131_072, *WINDOWED["Gemma 3 27B"]) == (10 * 131_072 + 52 * 1024) * 2 * 16 * 128 * 2


@pytest.mark.parametrize(
    "broken, error",
    [
        (lambda: WindowKVCache(1, 1, 0, 4), "WindowKVCache: window must be an integer >= 1, got 0"),
        (lambda: module(0), "GroupedQueryAttention: window must be an integer >= 1 or None, got 0"),
        (
            lambda: Decoder(DecoderConfig(latent=8, windows=(4,))),
            "DecoderConfig: windows go with keys and values, got latent=8 and window=4",
        ),
        (
            lambda: WindowKVCache(2, 1, 3, 4).append(*torch.ones(2, 2, 1, 1, 4), counts=[1]),
            r"WindowKVCache: counts must be 2 integers from 0 to 1, got \[1\]",
        ),
    ],
)
def test_errors(broken, error):
    with pytest.raises((ValueError, TypeError), match="^" + error + "$"):
        broken()
