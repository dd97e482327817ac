"""The decoder: with a cache, token for token what it writes without."""

import pytest
import torch
import torch.nn.functional as F

import tinydist
from tinydist.attention import (
    Decoder,
    DecoderConfig,
    LatentAttention,
    Yarn,
    bytes_per_token,
    generate,
    generate_without_cache,
    latent_bytes_per_token,
)


def model(**options):
    """With weights so large that what it writes depends on all that was before."""
    torch.manual_seed(0)
    writer = Decoder(DecoderConfig(vocab_size=61, dim=24, heads=6, **options)).double()
    for block in writer.blocks:
        for layer in block.attention.children():
            torch.nn.init.normal_(layer.weight)
    return writer


KINDS = {
    "MHA": dict(kv_heads=6), "GQA": dict(kv_heads=2), "MQA": dict(kv_heads=1), "MLA": dict(latent=9, rotary_dim=2),
    "GQA, YaRN": dict(kv_heads=2, rotary=Yarn(4, 16)), "MLA, YaRN": dict(latent=9, rotary_dim=4, rotary=Yarn(4, 16)),
}  # fmt: skip
kinds = pytest.mark.parametrize("kind", KINDS)


def prompts(*lengths):
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(61, (length,), generator=generator) for length in lengths]


@kinds
@pytest.mark.parametrize("lengths", [(4,), (3, 9, 1), (2, 7, 4, 13)])
@pytest.mark.parametrize("count", [1, 2, 9])
def test_with_the_cache_token_for_token_as_without(kind, lengths, count):
    writer = model(**KINDS[kind])
    found = generate(writer, prompts(*lengths), count)
    assert found.shape == (len(lengths), count)
    assert torch.equal(found, generate_without_cache(writer, prompts(*lengths), count))


def test_it_writes_more_than_one_token():
    """Or the test above would say little."""
    writer, (prompt,) = model(), prompts(9)
    assert len(generate(writer, [prompt], 20).unique()) > 10
    assert not torch.equal(generate(writer, [prompt], 20), generate(writer, [prompt[1:]], 20))


@kinds
def test_logits_of_decode_are_those_of_the_whole(kind):
    writer, tokens = model(**KINDS[kind]), torch.stack(prompts(9, 9))
    caches = writer.caches(2, 9)
    found = torch.cat([writer(tokens[:, :5], caches), *(writer(tokens[:, i : i + 1], caches) for i in range(5, 9))], 1)
    torch.testing.assert_close(found, writer(tokens), rtol=0, atol=1e-12)


def test_rows_that_pass_the_model():
    """After a prompt of 10, 5 tokens: 10 + 4 rows with the cache, 10 + 11 + 12 + 13 + 14 without."""
    writer, rows = model(), []
    writer.norm.register_forward_hook(lambda module, inputs, output: rows.append(output.shape[1]))
    generate(writer, prompts(10), 5)
    assert rows == [10, 1, 1, 1, 1]
    rows.clear()
    generate_without_cache(writer, prompts(10), 5)
    assert rows == [10, 11, 12, 13, 14]


@kinds
def test_all_kinds_learn(kind):
    writer, tokens = Decoder(DecoderConfig(61, dim=24, heads=6, **KINDS[kind])).double(), torch.stack(prompts(9, 9))
    F.cross_entropy(writer(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in writer.parameters())
    assert all(each.grad.any() for each in writer.blocks.parameters())


def test_decoding_absorbs_and_prefill_does_not(monkeypatch):
    """By its FLOPs: a prompt makes its keys, a token after many makes none."""
    ways, pays = [], LatentAttention.should_absorb
    monkeypatch.setattr(LatentAttention, "should_absorb", lambda *sizes: ways.append(pays(*sizes)) or ways[-1])
    generate(model(**KINDS["MLA"]), prompts(13), 3)
    assert ways == [False, False, True, True, True, True]


@pytest.mark.parametrize(
    "options, nbytes",
    [
        (dict(kv_heads=2), bytes_per_token(3, 2, 16, torch.float32)),
        (dict(latent=40), latent_bytes_per_token(3, 40, 8, torch.float32)),
    ],
)
def test_the_caches_bytes(options, nbytes):
    config = DecoderConfig(layers=3, heads=8, dim=128, **options)
    run = tinydist.launch(lambda: Decoder(config).caches(5, 100), 1, fake=True)  # the decoder itself is gone by the end
    held = list(run.memory[0].over_time())[-1][1]
    assert sum(held.values()) == 5 * 100 * nbytes


def test_a_cache_of_the_other_kind_is_refused():
    latent, grouped = model(latent=9), model()
    with pytest.raises(TypeError, match=r"^GroupedQueryAttention.forward: cache must be a KVCache or None, got "):
        grouped(torch.stack(prompts(3)), latent.caches(1, 4))
    with pytest.raises(TypeError, match=r"^LatentAttention.forward: cache must be a LatentCache or None, got "):
        latent(torch.stack(prompts(3)), grouped.caches(1, 4))


@pytest.mark.parametrize("write", [generate, generate_without_cache])
@pytest.mark.parametrize(
    "given, count, error",
    [
        (prompts(3), 0, r"generate: count must be an integer >= 1, got 0"),
        ([], 3, r"generate: prompts must have shape \[T\] with at least one token, got the shapes \[\]"),
        (
            prompts(3, 0),
            3,
            r"generate: prompts must have shape \[T\] with at least one token, got the shapes \[\[3\], \[0\]\]",
        ),
        ([torch.zeros(1, 3)], 3, r"generate: prompts must have shape \[T\] with at least one token, .* \[\[1, 3\]\]"),
    ],
)
def test_errors(write, given, count, error):
    with pytest.raises(ValueError, match="^" + error + "$"):
        write(model(), given, count)
