"""FP8: what is stored, and what an outlier costs; matmuls beside torch's own, a layer, a network that learns; time."""

import math
from contextlib import nullcontext
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from precision.eight_bits import BOTH, E4M3, E5M2, down, error, numbers, randoms

import tinydist
from tinydist.hardware import Cluster, costs
from tinydist.hardware.devices import B200, H100
from tinydist.model import GPT, GPTConfig
from tinydist.precision import autocast, fp8, in_fp8, mxfp8, round_to


@BOTH
@given(drawn=numbers)
def test_the_largest_becomes_the_largest_and_all_are_rounded_to_the_nearest(format, drawn):
    x = torch.tensor(drawn)
    scaled = fp8.quantize(x, format)
    assert scaled.values.dtype == format.dtype
    assert torch.equal(scaled.values.float(), round_to(x / scaled.scale, format))
    assert scaled.scale == max((x.abs().max() / format.largest).item(), 2.0**-126)
    if x.abs().max() > 2.0**-100:
        assert scaled.values.float().abs().max() == format.largest


def test_nothing_but_zeros_and_an_infinity():
    assert fp8.quantize(torch.zeros(5)).dequantize().tolist() == [0.0] * 5
    assert fp8.quantize(torch.tensor([1.0, math.inf])).dequantize().isnan().all()
    assert fp8.quantize(torch.tensor([1.0, math.nan])).dequantize().isnan().all()


def test_an_outlier_takes_the_small_numbers_of_its_tensor_or_of_its_block():
    x = torch.full((64,), 0.01)
    x[0] = 2.0**14
    assert (fp8.quantize(x).dequantize()[1:] == 0).all()
    found = mxfp8.quantize(x).dequantize()
    assert (found[1:32] == 0).all()
    torch.testing.assert_close(found[32:], x[32:], rtol=2**-4, atol=0)


@pytest.mark.parametrize("quantize", [fp8.quantize, mxfp8.quantize, down])
def test_what_fp8_can_hold_is_multiplied_exactly(quantize):
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-8, 9, (rows, 64), generator=draw).float() for rows in (5, 7))
    a[:, ::32] = b[:, ::32] = 7 / 4  # of 448, with the scale 2^-8 of a block
    a[0, 0] = b[0, 0] = 7 * 2.0**6 if quantize is fp8.quantize else 8
    assert torch.equal(fp8.matmul(quantize(a), quantize(b)), a @ b.T)


@pytest.mark.parametrize("formats", [(E4M3, E4M3), (E5M2, E4M3)], ids=str)
def test_products_are_torchs_scaled_mm(formats):
    a, b = fp8.quantize(randoms(16, 64), formats[0]), fp8.quantize(randoms(32, 64, seed=1), formats[1])
    theirs = torch._scaled_mm(a.values, b.values.T, a.scale, b.scale, out_dtype=torch.float32)
    torch.testing.assert_close(fp8.matmul(a, b), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("quantize, gradients", [(fp8.quantize, E5M2), (mxfp8.quantize, E4M3)], ids=["fp8", "mxfp8"])
def test_a_layer_is_three_products_each_of_operands_quantized_along_what_is_added_up(quantize, gradients):
    x, weight = randoms(2, 32, 96).requires_grad_(), randoms(64, 96, seed=1).requires_grad_()
    dy = randoms(2, 32, 64, seed=2)
    y = fp8.linear(x, weight, quantize, gradients)
    y.backward(dy)
    rows, down_ = x.detach().view(64, 96), dy.view(64, 64)
    wide = lambda x, format=E4M3: quantize(x, format).dequantize()  # noqa: E731
    expected = {
        "y": wide(rows) @ wide(weight.detach()).T,
        "dx": wide(down_, gradients) @ wide(weight.detach().T).T,
        "dw": wide(down_.T, gradients) @ wide(rows.T).T,
    }
    found = {"y": y.detach().view(64, 64), "dx": x.grad.view(64, 96), "dw": weight.grad}
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    exact = {"y": rows @ weight.detach().T, "dx": down_ @ weight.detach(), "dw": down_.T @ rows}
    assert all(0.01 < error(found[name], exact[name]) < 0.1 for name in exact)


@pytest.mark.parametrize("quantize", [fp8.quantize, mxfp8.quantize])
def test_a_small_network_learns_as_in_fp32(quantize):
    def losses(linear):
        weights = [(0.2 * randoms(64, 64, seed=seed)).requires_grad_() for seed in (1, 2)]
        optimizer = torch.optim.AdamW(weights, lr=3e-3)
        for step in range(60):
            x = randoms(32, 64, seed=step)
            loss = F.mse_loss(linear(torch.tanh(linear(x, weights[0])), weights[1]), x.flip(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    exact = losses(F.linear)
    assert exact < 0.8
    assert abs(losses(partial(fp8.linear, quantize=quantize)) - exact) < 0.1 * exact


@pytest.mark.parametrize("shape", [(64,), (1, 64), (2, 3, 5, 64)])
def test_rows_may_have_any_shape_as_with_torchs(shape):
    x, weight = randoms(*shape), randoms(32, 64, seed=1)
    assert fp8.linear(x, weight).shape == F.linear(x, weight).shape
    assert error(fp8.linear(x, weight), F.linear(x, weight)) < 0.1


@pytest.mark.parametrize("context", [nullcontext, autocast])
def test_linear_layers_within_are_computed_in_fp8_and_nothing_else(context):
    layer, x = torch.nn.Linear(64, 32), randoms(3, 64)
    with in_fp8(), context():
        y, product = layer(x), x @ layer.weight.T
    dtype = torch.float32 if context is nullcontext else torch.bfloat16
    expected = fp8.linear(x.to(dtype), layer.weight.to(dtype)) + layer.bias.to(dtype)
    assert torch.equal(y, expected) and y.dtype == product.dtype == dtype
    assert error(product, x @ layer.weight.T) < 0.01 < error(y, layer(x))


# In virtual time.


def layer(linear, size, cluster="B200 node"):
    def program():
        x, weight = (torch.ones(size, size, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
        with tinydist.region("step"):
            y = linear(x, weight)
            y.backward(y.detach())

    return tinydist.launch(program, 1, fake=True, cluster=cluster).between("step")


@pytest.mark.parametrize(
    "quantize, device, scales",
    [(fp8.quantize, H100, 4), (fp8.quantize, B200, 4), (mxfp8.quantize, B200, 4096 * 4096 // 32)],
    ids=["fp8 on H100", "fp8 on B200", "mxfp8 on B200"],
)
def test_products_run_at_the_rate_of_float8(quantize, device, scales):
    run = layer(partial(fp8.linear, quantize=quantize), 4096, Cluster(device, 1))
    products = [event for event in run.trace.of(0) if event.name == "fp8_matmul"]
    nbytes = 2 * (4096 * 4096 + scales) + 2 * 4096 * 4096  # two operands of fp8, one result of bf16
    expected = costs.kernel_time(device, 2 * 4096**3, nbytes, "float8")
    assert [event.end - event.start for event in products] == pytest.approx([expected] * 3)
    assert expected == pytest.approx(2 * 4096**3 / device.peak_of("bfloat16") / 2, rel=1e-3)


@pytest.mark.parametrize("quantize", [fp8.quantize, mxfp8.quantize])
def test_casts_cost_more_than_they_save_in_a_small_layer(quantize):
    small, large = (
        layer(F.linear, size).seconds / layer(partial(fp8.linear, quantize=quantize), size).seconds
        for size in (512, 8192)
    )
    assert small < 1 and 1.4 < large < 2


def test_a_gpt_in_fp8_is_faster_though_not_by_two():
    """Attention, norms and casts stay."""

    def program(context):
        torch.set_default_dtype(torch.bfloat16)
        gpt = GPT(GPTConfig(vocab_size=4096, context=2048, layers=1, heads=32, dim=4096))
        tokens = torch.zeros(2, 2048, dtype=torch.long)
        with context(), tinydist.region("step"):
            gpt.loss(tokens, tokens).backward()

    bf16, eight = (
        tinydist.launch(program, 1, context, fake=True, cluster="H100 node").between("step")
        for context in (nullcontext, in_fp8)
    )
    assert 1.1 < bf16.seconds / eight.seconds < 1.5
    names = [event.name for event in eight.trace.of(0)]
    assert names.count("fp8_matmul") == 3 * 5 and "mm" not in names and "addmm" not in names


@pytest.mark.parametrize(
    "quantize, cluster, rule",
    [
        (fp8.quantize, "A100 node", "A100 80GB has no peak FLOP/s for float8; available: float64, float32, tf32"),
        (mxfp8.quantize, "H100 node", "H100 has no peak FLOP/s for mxfp8; available: .*, float8, int8"),
    ],
)
def test_a_device_without_it_says_so(quantize, cluster, rule):
    run = tinydist.launch(lambda: fp8.linear(torch.ones(32, 32), torch.ones(32, 32), quantize), 1)
    with pytest.raises(ValueError, match=rule):
        run.on(cluster).seconds  # noqa: B018


# Errors.


def test_errors():
    with pytest.raises(ValueError, match=r"mxfp8\.quantize: the last dim must be a multiple of 32, got \[3, 33\]"):
        mxfp8.quantize(torch.ones(3, 33))
    for quantize in (fp8.quantize, mxfp8.quantize):
        with pytest.raises(ValueError, match="format must be 'fp8 e4m3' or 'fp8 e5m2', got bf16"):
            quantize(torch.ones(32), "bf16")
    with pytest.raises(ValueError, match=r"matmul: expected \[m, k\] and \[n, k\], got \[2, 4\] and \[4, 3\]"):
        fp8.matmul(fp8.quantize(torch.ones(2, 4)), fp8.quantize(torch.ones(4, 3)))
