"""MLA: the definition head by head, absorbed or not, through a cache of latents, and transformers' DeepSeek-V3."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import tinydist
from tinydist.attention import (
    LatentAttention,
    LatentCache,
    Yarn,
    attention,
    flash_attention,
    latent_bytes_per_token,
    rotate,
)

DOUBLE = dict(rtol=0, atol=1e-12)


def module(dim=24, heads=3, latent=10, rotary_dim=4, head_dim=6, value_dim=5, query_latent=7, **options):
    torch.manual_seed(0)
    sizes = dict(latent=latent, rotary_dim=rotary_dim, head_dim=head_dim, value_dim=value_dim)
    return LatentAttention(dim, heads, **sizes, query_latent=query_latent, **options).double()


def random(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def new_cache(batch, capacity=16):
    return LatentCache(batch, capacity, 10, 4, torch.float64)


@pytest.mark.parametrize("query_latent", [None, 7])
def test_as_defined_head_by_head(query_latent):
    layer, x = module(query_latent=query_latent), random(5, 24)
    latents, turning = layer.down(x).split([10, 4], dim=-1)
    of_heads, positions = layer.up.weight.view(3, 11, 10), torch.arange(5)
    turned, mixed = rotate(turning[None, None], positions)[0, 0], []
    for h, queries in enumerate(layer.query(x).split(10, dim=-1)):
        keys, values = (layer.norm(latents) @ of_heads[h].T).split([6, 5], dim=-1)
        scores = queries[:, :6] @ keys.T + rotate(queries[None, None, :, 6:], positions)[0, 0] @ turned.T
        scores = (scores / math.sqrt(10)).masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
        mixed.append(scores.softmax(-1) @ values)
    expected = layer.out(torch.cat(mixed, dim=-1))
    for absorbed in (True, False):
        torch.testing.assert_close(layer(x[None], causal=True, absorbed=absorbed)[0], expected, **DOUBLE)


@pytest.mark.parametrize("attend", [attention, flash_attention])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"causal": True, "window": 3}])
def test_absorbed_is_the_plain_one_forward_and_backward(attend, options):
    found = []
    for absorbed in (True, False):
        layer, x = module(attend=attend), random(2, 9, 24).requires_grad_()
        out = layer(x, absorbed=absorbed, **options)
        found.append([out, *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])])
    torch.testing.assert_close(found[0][0], found[1][0], **DOUBLE)
    torch.testing.assert_close(*found, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("absorbed", [True, False, None])
@pytest.mark.parametrize("pieces", [[9], [1] * 9, [4, 1, 1, 3]])
def test_pieces_with_a_cache_are_the_whole_without(absorbed, pieces):
    layer, x, cache = module(), random(2, 9, 24), new_cache(2, capacity=9)
    found = torch.cat([layer(piece, cache=cache, absorbed=absorbed) for piece in x.split(pieces, dim=1)], dim=1)
    torch.testing.assert_close(found, layer(x, causal=True, absorbed=False), **DOUBLE)
    assert cache.lengths == [9, 9]


@pytest.mark.parametrize("absorbed", [True, False])
def test_sequences_of_different_lengths(absorbed):
    layer, counts, cache = module(attend=flash_attention), [5, 2, 0], new_cache(3)
    first, second = random(3, 5, 24), random(3, 2, 24) + 1
    layer(first, cache=cache, counts=counts)
    found = layer(second, cache=cache, absorbed=absorbed)
    assert cache.lengths == [7, 4, 2]
    for row, count in enumerate(counts):
        alone = layer(torch.cat([first[row, :count], second[row]])[None], causal=True)[0, -2:]
        torch.testing.assert_close(found[row], alone, **DOUBLE)


# What it costs.


def flops(layer, tokens, past, absorbed):
    cache = LatentCache(1, past + tokens, layer.latent, layer.rotary_dim)
    cache.lengths = [past]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(torch.ones(1, tokens, 8), cache=cache, absorbed=absorbed)
    return counter.get_total_flops()


@given(st.integers(1, 20), st.integers(0, 40), st.integers(1, 12), st.integers(1, 6), st.integers(1, 6))
def test_the_cheaper_way_is_taken(tokens, past, latent, head_dim, value_dim):
    layer = LatentAttention(8, 2, latent=latent, rotary_dim=2, head_dim=head_dim, value_dim=value_dim)
    plain, absorbed, taken = (flops(layer, tokens, past, each) for each in (False, True, None))
    assert taken == min(plain, absorbed)
    T, S, c, d, e = tokens, past + tokens, latent, head_dim, value_dim
    assert absorbed - plain == 4 * (T * S * (2 * c - d - e) - (S - T) * c * (d + e))


def test_where_absorbing_pays_for_deepseek_v3():
    with torch.device("meta"):
        layer = LatentAttention(7168, 128, query_latent=1536)
    assert layer.should_absorb(1, 2) and layer.should_absorb(170, 10**6)
    assert not layer.should_absorb(171, 10**9) and not layer.should_absorb(4096, 4096)


def test_bytes_measured_are_those_of_deepseek_v3():
    tokens, layers = 4096, 61

    def program():
        return [LatentCache(1, tokens, dtype=torch.bfloat16) for _ in range(layers)]

    run = tinydist.launch(program, 1, fake=True)
    assert run.memory[0].peak == tokens * latent_bytes_per_token(layers) == tokens * 70_272


def test_an_absorbed_step_makes_no_keys():
    S, heads, head_dim, latent = 2000, 8, 16, 8

    def step(absorbed):
        layer = LatentAttention(8, heads, latent=latent, rotary_dim=2, head_dim=head_dim)
        cache = LatentCache(1, S, latent, 2)
        cache.lengths = [S - 1]
        with torch.no_grad():
            layer(torch.ones(1, 1, 8), cache=cache, absorbed=absorbed)

    absorbed, plain = (tinydist.launch(step, 1, each).memory[0].peak for each in (True, False))
    keys = S * heads * head_dim * 4
    assert absorbed < keys < plain


# Of others.


@pytest.mark.parametrize("query_latent, yarn", [(None, None), (24, None), (24, Yarn(40, 16))])
def test_transformers_deepseek_v3(query_latent, yarn):
    """With the same weights, to float32: it norms and turns in no other."""
    name = "transformers.models.deepseek_v3.modeling_deepseek_v3"
    theirs = pytest.importorskip(name, reason="transformers is not installed")
    turning = None if yarn is None else dict(
        rope_type="yarn", factor=40, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0
    )  # fmt: skip
    config = theirs.DeepseekV3Config(
        hidden_size=32, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=query_latent, kv_lora_rank=20,
        qk_rope_head_dim=8, qk_nope_head_dim=12, v_head_dim=10, rope_interleave=True, attn_implementation="eager",
        rope_parameters=turning,
    )  # fmt: skip
    attend, x = theirs.DeepseekV3Attention(config, layer_idx=0), random(2, 9, 32).float()
    sizes = dict(latent=20, rotary_dim=8, head_dim=12, value_dim=10, query_latent=query_latent)
    ours = LatentAttention(32, 4, **sizes, rotary=yarn or 10_000.0)
    queries = ["q_proj"] if query_latent is None else ["q_a_proj", "q_a_layernorm", "q_b_proj"]
    names = [*queries, "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj"]
    weights = [torch.randn_like(each) for each in ours.state_dict().values()]
    attend.load_state_dict({f"{name}.weight": each for name, each in zip(names, weights)})
    ours.load_state_dict(dict(zip(ours.state_dict(), weights)))
    turns = theirs.DeepseekV3RotaryEmbedding(config)(x, torch.arange(9)[None])
    hidden = torch.zeros(1, 1, 9, 9).masked_fill(torch.ones(9, 9).triu(1).bool(), -math.inf)
    expected, _ = attend(x, turns, hidden)
    for absorbed in (True, False):
        found = ours(x, causal=True, absorbed=absorbed)
        assert (found - expected).norm() < 1e-5 * expected.norm()


@pytest.mark.parametrize(
    "make, error",
    [
        (lambda: module(rotary_dim=3), r"LatentAttention: rotary_dim must be even \(RoPE rotates pairs\), got 3"),
        (lambda: module(latent=0), r"LatentAttention: latent must be an integer >= 1, got 0"),
        (lambda: module()(random(5, 24)), r"LatentAttention: takes \[batch, tokens, 24\], got \[5, 24\]"),
        (lambda: module()(random(1, 5, 24), counts=[3]), r"LatentAttention: counts requires a cache"),
        (
            lambda: module()(random(1, 5, 24), cache=new_cache(1), causal=True),
            r"LatentAttention: causal cannot be passed together with a cache",
        ),
        (
            lambda: module()(random(1, 5, 24), cache=new_cache(1, 4)),
            r"LatentCache: sequence 0 has 0 tokens; 5 more exceed capacity \(4\)",
        ),
        (
            lambda: module()(random(1, 5, 24), cache=LatentCache(1, 8, 11, 4, torch.float64)),
            r"LatentCache: holds \[1, 1, tokens, 15\], got latents \[1, 1, 5, 14\]",
        ),
    ],
)
def test_errors(make, error):
    with pytest.raises(ValueError, match="^" + error + "$"):
        make()
