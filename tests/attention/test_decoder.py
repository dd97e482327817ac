"""The decoder: with a cache, token for token what it writes without."""

import pytest
import torch

import tinydist
from tinydist.attention import Decoder, DecoderConfig, bytes_a_token, generate, generate_without_cache


def model(**options):
    """With weights so large that what it writes depends on all that was before."""
    torch.manual_seed(0)
    writer = Decoder(DecoderConfig(vocab_size=61, dim=24, heads=6, **options)).double()
    for block in writer.blocks:
        for layer in (block.attention.query, block.attention.key, block.attention.value, block.attention.out):
            torch.nn.init.normal_(layer.weight)
    return writer


def prompts(*lengths):
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(61, (length,), generator=generator) for length in lengths]


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("lengths", [(4,), (3, 9, 1), (2, 7, 4, 13)])
@pytest.mark.parametrize("count", [1, 2, 9])
def test_with_the_cache_token_for_token_as_without(kv_heads, lengths, count):
    writer = model(kv_heads=kv_heads)
    found = generate(writer, prompts(*lengths), count)
    assert found.shape == (len(lengths), count)
    assert torch.equal(found, generate_without_cache(writer, prompts(*lengths), count))


def test_it_writes_more_than_one_token():
    """Or the test above would say little."""
    writer, (prompt,) = model(), prompts(9)
    assert len(generate(writer, [prompt], 20).unique()) > 10
    assert not torch.equal(generate(writer, [prompt], 20), generate(writer, [prompt[1:]], 20))


def test_logits_of_decode_are_those_of_the_whole():
    writer, tokens = model(), torch.stack(prompts(9, 9))
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


def test_the_caches_bytes():
    config = DecoderConfig(layers=3, heads=8, kv_heads=2, dim=128)
    run = tinydist.launch(lambda: Decoder(config).caches(5, 100), 1, fake=True)  # the decoder itself is gone by the end
    held = list(run.memory[0].over_time())[-1][1]
    assert sum(held.values()) == 5 * 100 * bytes_a_token(3, 2, 16, torch.float32)


@pytest.mark.parametrize("write", [generate, generate_without_cache])
@pytest.mark.parametrize(
    "given, count, error",
    [
        (prompts(3), 0, r"generate: count must be a whole number from 1, got 0"),
        ([], 3, r"generate: takes prompts \[T\], each of one token at least, got the shapes \[\]"),
        (
            prompts(3, 0),
            3,
            r"generate: takes prompts \[T\], each of one token at least, got the shapes \[\[3\], \[0\]\]",
        ),
        ([torch.zeros(1, 3)], 3, r"generate: takes prompts \[T\], each of one token at least, .* \[\[1, 3\]\]"),
    ],
)
def test_errors(write, given, count, error):
    with pytest.raises(ValueError, match="^" + error + "$"):
        write(model(), given, count)
