"""A decoder for llama.cpp: its file as the package gguf reads it; and llama.cpp's logits, if it is installed."""

import gguf
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tinydist.attention.decoder import Decoder, DecoderConfig
from tinydist.attention.rotary import Yarn
from tinydist.quantization import FORMATS, in_blocks, load_gguf, quantize, save_llama

SIZES = dict(vocab_size=256, layers=2, heads=8, kv_heads=4, dim=256)


@torch.no_grad()
def decoder(**changed):
    """Norms of their own, so that none is taken for another; a small embedding, so that their epsilon counts."""
    torch.manual_seed(0)
    model = Decoder(DecoderConfig(**SIZES | changed))
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.uniform_(0.5, 1.5)
    model.embedding.weight.mul_(0.01)
    return model


def test_gguf_knows_each_name_as_one_of_llama(tmp_path):
    save_llama(tmp_path / "model.gguf", decoder())
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2).mapping
    known = {f"{name}.weight" for _, name in names.values()}
    found = {each.name for each in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    assert found <= known and len(found) == 3 + 2 * 9


@pytest.mark.parametrize("format", [None, "Q8_0", "Q4_0", "Q4_K"])
def test_each_tensor_is_the_layers(tmp_path, format):
    model = in_blocks(decoder(), format) if format else decoder()
    save_llama(tmp_path / "model.gguf", model)
    tensors = {each.name: each for each in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    for name, ours in [
        ("token_embd", model.embedding), ("output_norm", model.norm), ("output", model.head),
        ("blk.1.attn_norm", model.blocks[1].attention_norm), ("blk.1.ffn_norm", model.blocks[1].mlp_norm),
        ("blk.1.attn_q", model.blocks[1].attention.query), ("blk.1.attn_k", model.blocks[1].attention.key),
        ("blk.1.attn_v", model.blocks[1].attention.value), ("blk.1.attn_output", model.blocks[1].attention.out),
        ("blk.1.ffn_gate", model.blocks[1].gate), ("blk.1.ffn_up", model.blocks[1].up),
        ("blk.1.ffn_down", model.blocks[1].down),
    ]:  # fmt: skip
        theirs, in_fp32 = tensors[f"{name}.weight"], isinstance(ours.weight, torch.Tensor)
        assert theirs.tensor_type.name == ("F32" if in_fp32 else format)
        weight = ours.weight.detach() if in_fp32 else ours.weight.dequantize()
        assert np.array_equal(gguf.dequantize(theirs.data, theirs.tensor_type), weight.numpy())


def test_keys(tmp_path):
    save_llama(tmp_path / "model.gguf", decoder(rotary=500_000.0), context=64)
    fields = gguf.GGUFReader(tmp_path / "model.gguf").fields
    found = {name: each.contents() for name, each in fields.items() if not name.startswith("GGUF.")}
    tokens = found.pop("tokenizer.ggml.tokens")
    assert [tokens[byte] for byte in (0, 10, 255)] == [r"\x00", r"\x0a", r"\xff"] and len(tokens) == 256
    assert found == {
        "general.architecture": "llama", "general.quantization_version": 2, "tokenizer.ggml.model": "rwkv",
        "llama.vocab_size": 256, "llama.context_length": 64, "llama.block_count": 2, "llama.embedding_length": 256,
        "llama.feed_forward_length": 1024, "llama.attention.head_count": 8, "llama.attention.head_count_kv": 4,
        "llama.attention.layer_norm_rms_epsilon": 2.0**-23, "llama.rope.freq_base": 500_000.0,
    }  # fmt: skip


def test_another_vocabulary_has_no_text(tmp_path):
    save_llama(tmp_path / "model.gguf", decoder(vocab_size=100))
    fields = gguf.GGUFReader(tmp_path / "model.gguf").fields
    assert fields["tokenizer.ggml.model"].contents() == "none" and "tokenizer.ggml.tokens" not in fields


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"latent": 16}, "full attention and plain RoPE, got latent=16"),
        ({"windows": (None, 8)}, r"got windows=\(None, 8\)"),
        ({"rotary": Yarn(4)}, r"got rotary=Yarn\(factor=4"),
    ],
)
def test_what_llama_does_not_compute(tmp_path, changed, words):
    with pytest.raises(ValueError, match=f"^save_llama: .*{words}"):
        save_llama(tmp_path / "model.gguf", decoder(**changed))
    assert not list(tmp_path.iterdir())


def test_another_dtype(tmp_path):
    with pytest.raises(ValueError, match=r"token_embd\.weight must be in blocks or fp32, got torch.bfloat16"):
        save_llama(tmp_path / "model.gguf", decoder().bfloat16())


@pytest.fixture(scope="module")
def beside():
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: pip install llama-cpp-python")
    from benchmarks import beside_llama_cpp

    return beside_llama_cpp


TOKENS = torch.randint(0, 256, (48,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("changed", [{}, {"kv_heads": 8}, {"kv_heads": 1}, {"rotary": 500.0}, {"vocab_size": 300}])
@torch.no_grad()
def test_llama_cpp_has_our_logits(tmp_path, beside, changed):
    model = decoder(**changed)
    save_llama(tmp_path / "model.gguf", model)
    found = beside.logits_of(tmp_path / "model.gguf", TOKENS.tolist())
    assert torch.allclose(found, model(TOKENS[None])[0], atol=1e-5)


@pytest.mark.parametrize("format", FORMATS)
@torch.no_grad()
def test_llama_cpp_has_our_logits_of_blocks(tmp_path, beside, format):
    """With x rounded as ggml does. Some codes of x near a half go the other way, which all later tokens see."""
    model = in_blocks(decoder(), format, multiply=beside.as_ggml)
    as_it_is = in_blocks(decoder(), format, multiply=lambda x, weight: F.linear(x, weight.dequantize()))
    save_llama(tmp_path / "model.gguf", model)
    ours = model(TOKENS[None])[0]
    difference = beside.logits_of(tmp_path / "model.gguf", TOKENS.tolist()) - ours
    assert difference.abs().amax(-1).min() < 1e-5
    assert difference.norm() < 0.5 * (as_it_is(TOKENS[None])[0] - ours).norm()


def test_text_goes_through_llama_cpp(tmp_path, beside):
    save_llama(tmp_path / "model.gguf", decoder())
    llama, text = beside.loaded(tmp_path / "model.gguf", 32), "for i in ü:\n\0".encode()
    assert llama.tokenize(text, add_bos=False) == list(text) and llama.detokenize(list(text)) == text


def test_llama_cpp_quantizes_to_our_blocks(tmp_path, beside):
    save_llama(tmp_path / "model.gguf", decoder())
    ours = load_gguf(tmp_path / "model.gguf")[0]
    for format in FORMATS:
        theirs = beside.requantized(tmp_path / "model.gguf", format, tmp_path / "theirs.gguf")
        reader = gguf.GGUFReader(tmp_path / "theirs.gguf")
        for each in reader.tensors:
            if each.name.startswith("blk") and "norm" not in each.name:
                found, weight = theirs[each.name], ours[each.name]
                assert found.format.name == format
                assert np.array_equal(gguf.dequantize(each.data, each.tensor_type), found.dequantize().numpy())
                blocks = quantize(weight, format)
                error, least = ((weight - one.dequantize()).norm() for one in (blocks, found))
                assert blocks.data.equal(found.data) if found.format.weights == 32 else error < 1.02 * least


@pytest.mark.parametrize("format", FORMATS)
def test_ggml_multiplies_as_we_do(beside, format):
    """Without a model: a product and a division by the RMS. One code of x the other way is less than 0.01 of it."""
    from benchmarks.ggml import Chain

    draw = torch.Generator().manual_seed(2)
    weight, x = quantize(torch.randn(64, 256, generator=draw), format), torch.randn(256, generator=draw)
    ours = beside.as_ggml(x, weight)
    ours = ours / ours.square().mean().sqrt()
    for repack in {False, format == "Q4_0"}:
        chain = Chain([weight], repack=repack)
        assert torch.allclose(chain(x), ours, atol=0.01)
        chain.close()
