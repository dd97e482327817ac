"""A layer in blocks beside one that has the weights it stands for; a decoder of them; its cache."""

import pytest
import torch
from torch import nn

from tinydist.attention.decoder import Decoder, DecoderConfig, generate
from tinydist.attention.kv_cache import KVCache
from tinydist.quantization import FORMATS, BlockKVCache, BlockLinear, Blocks, in_blocks, matmul, quantize
from tinydist.quantization.matvec import matvec

GENERATOR = torch.Generator().manual_seed(0)
CONFIG = DecoderConfig(dim=256, heads=8, kv_heads=4)


@pytest.mark.parametrize("name", FORMATS)
def test_product_by_integers(name):
    """Of one block at a time, in Python's integers where the format has a scale alone."""
    w, x = quantize(torch.randn(3, 256, generator=GENERATOR), name), torch.randn(2, 256, generator=GENERATOR)
    inputs = quantize(x, "Q8_0")
    expected = inputs.dequantize().double() @ w.dequantize().double().T
    assert torch.allclose(matmul(x, w).double(), expected, atol=256 * torch.finfo(torch.float32).eps * 16)
    if name == "Q8_0":
        dx, dw = (each.data.view(-1, 8, 34)[..., :2].contiguous().view(torch.float16).double() for each in (inputs, w))
        qx, qw = (each.data.view(-1, 8, 34)[..., 2:].contiguous().view(torch.int8).long() for each in (inputs, w))
        sums = torch.einsum("mbk,nbk->mnb", qx, qw)
        assert torch.allclose(torch.einsum("mnb,mb,nb->mn", sums.double(), dx[..., 0], dw[..., 0]), expected, atol=1e-9)


def test_a_layer():
    layer = nn.Linear(256, 64)
    blocks = BlockLinear(layer, "Q8_0")
    x = torch.randn(2, 3, 256)
    assert torch.allclose(blocks(x), layer(x), atol=0.05) and blocks(x).shape == (2, 3, 64)
    assert blocks.data.shape == (64, 8 * 34) and [name for name, _ in blocks.named_parameters()] == ["bias"]
    assert blocks.state_dict().keys() == {"data", "bias"}


@pytest.mark.parametrize("name, error", [("Q8_0", 0.02), ("Q6_K", 0.05), ("Q4_0", 0.4)])
def test_a_decoder(name, error):
    torch.manual_seed(0)
    model, tokens = Decoder(CONFIG), torch.randint(0, 256, (2, 16), generator=GENERATOR)
    expected = model(tokens)
    linear = [
        each.weight.numel() for key, each in model.named_modules() if isinstance(each, nn.Linear) and key != "head"
    ]
    found = in_blocks(model, name)(tokens)
    assert (found - expected).norm() / expected.norm() < error
    assert (
        sum(each.data.nbytes for each in model.modules() if isinstance(each, BlockLinear))
        == sum(linear) * FORMATS[name].bits / 8
    )
    assert isinstance(model.head, nn.Linear)


def test_a_decoder_in_blocks_writes_with_its_cache():
    model = in_blocks(Decoder(CONFIG), "Q8_0")
    tokens, caches = torch.randint(0, 256, (2, 16), generator=GENERATOR), model.caches(2, 16)
    expected, found = model(tokens), model(tokens, caches)
    assert (found - expected).norm() / expected.norm() < 0.02  # a code of x may be rounded the other way
    assert generate(model, list(tokens), 3).shape == (2, 3)


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0"])
def test_a_cache_in_blocks_keeps_what_the_format_keeps(name):
    cache, plain = BlockKVCache(2, 4, 8, 32, name), KVCache(2, 4, 8, 32)
    for T, counts in ((3, [3, 2]), (1, None), (2, [2, 1])):
        k, v = torch.randn(2, 2, 4, T, 32, generator=GENERATOR)
        found = cache.append(k, v, counts)
        rounded = (quantize(each, name).dequantize() for each in (k, v))
        for ours, expected in zip(found, plain.append(*rounded, counts)):
            assert ours.equal(expected)
    assert cache.lengths == plain.lengths == [6, 4]
    assert cache.nbytes == plain.nbytes * FORMATS[name].bits / 32


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shape", [(0, 256), (3, 0)])
def test_of_no_weights(name, shape):
    w = quantize(torch.empty(shape), name)
    assert w.shape == shape and w.dequantize().shape == shape
    assert matmul(torch.ones(2, shape[1]), w).equal(torch.zeros(2, shape[0]))


def test_a_layer_that_is_shared_stays_shared():
    layer = nn.Linear(32, 32)
    first, _, last = in_blocks(nn.Sequential(layer, nn.ReLU(), layer))
    assert isinstance(first, BlockLinear) and first is last


def test_a_layer_that_does_not_fit_is_named_before_any_is_replaced():
    model = nn.Sequential(nn.Linear(32, 33), nn.Linear(33, 2))
    with pytest.raises(ValueError, match=r"in_blocks: 1.in_features \(33\) must be divisible by 32"):
        in_blocks(model)
    assert isinstance(model[0], nn.Linear)
    assert isinstance(in_blocks(model, keep=["1"])[0], BlockLinear)
    with pytest.raises(ValueError, match="in_blocks: model must have its nn"):
        in_blocks(model[1])


def test_errors():
    with pytest.raises(ValueError, match="blocks of 32, which must divide head_dim, got 24"):
        BlockKVCache(1, 1, 1, 24)
    with pytest.raises(ValueError, match=r"matmul: expected \[..., in\] and \[out, in\], got \[3, 32\] and \[2, 64\]"):
        matmul(torch.zeros(3, 32), quantize(torch.zeros(2, 64)))
    with pytest.raises(TypeError, match="Blocks: format must be a Format, got 'Q8_0'"):
        Blocks(torch.zeros(34, dtype=torch.uint8), "Q8_0")


@pytest.mark.parametrize("name", ["Q4_0", "Q8_0"])
@pytest.mark.parametrize("threads", [1, 2])
def test_matvec_is_the_product(name, threads):
    pytest.importorskip("llvmlite", reason="kernels over blocks are compiled by llvmlite")
    w, x = quantize(torch.randn(5, 128, generator=GENERATOR), name), torch.randn(2, 3, 128, generator=GENERATOR)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = matvec(x, w)
    finally:
        torch.set_num_threads(before)
    assert found.shape == (2, 3, 5)
    assert torch.allclose(found, matmul(x, w), atol=128 * torch.finfo(torch.float32).eps * 8)


@pytest.mark.parametrize("shape", [(0, 32), (3, 0)])
def test_matvec_of_no_weights(shape):
    pytest.importorskip("llvmlite", reason="kernels over blocks are compiled by llvmlite")
    assert matvec(torch.ones(2, shape[1]), quantize(torch.empty(shape))).equal(torch.zeros(2, shape[0]))


def test_matvec_errors():
    with pytest.raises(ValueError, match="matvec: weight must be in Q8_0 or Q4_0, got Q6_K"):
        matvec(torch.zeros(256), quantize(torch.zeros(2, 256), "Q6_K"))
    with pytest.raises(ValueError, match=r"matvec: expected \[..., in\] and \[out, in\], got \[32\] and \[2, 64\]"):
        matvec(torch.zeros(32), quantize(torch.zeros(2, 64)))
