"""FP8 by one scale and by scales of blocks: what is stored, what is lost, and the products of a linear layer."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import tinydist
from tinydist.hardware import Cluster, costs
from tinydist.hardware.devices import B200, H100
from tinydist.precision import FORMATS, fp8, fp8_linear, mxfp8, round_to

E4M3, E5M2 = FORMATS["fp8 e4m3"], FORMATS["fp8 e5m2"]
BOTH = pytest.mark.parametrize("format", [E4M3, E5M2], ids=str)
down = partial(mxfp8.quantize, rounding="down")
numbers = st.lists(st.floats(width=32, min_value=-(2.0**100), max_value=2.0**100), min_size=32, max_size=32)


def randoms(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def error(found, exact):
    return ((found - exact).norm() / exact.norm()).item()


# One scale.


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
    assert fp8.quantize(torch.zeros(5)).wide().tolist() == [0.0] * 5
    assert fp8.quantize(torch.tensor([1.0, math.inf])).wide().isnan().all()
    assert fp8.quantize(torch.tensor([1.0, math.nan])).wide().isnan().all()


def test_an_outlier_takes_the_small_numbers_of_its_tensor_or_of_its_block():
    x = torch.full((64,), 0.01)
    x[0] = 2.0**14
    assert (fp8.quantize(x).wide()[1:] == 0).all()
    found = mxfp8.quantize(x).wide()
    assert (found[1:32] == 0).all()
    torch.testing.assert_close(found[32:], x[32:], rtol=2**-4, atol=0)


# Scales of blocks.


@pytest.mark.parametrize("rounding", ["up", "down"])
@BOTH
@given(drawn=numbers)
def test_a_scale_is_the_power_of_two_that_the_rule_says(format, rounding, drawn):
    """Down, as the specification has it: amax / scale is from 2^8 (e4m3) to below 2^9. Up: nothing is cut."""
    x = torch.tensor(drawn)
    values, scale = mxfp8.quantize(x, format, rounding)
    amax, s = x.abs().max().double().item(), scale.double().item()
    assert values.dtype == format.dtype and scale.dtype == torch.float8_e8m0fnu and math.frexp(s)[0] == 0.5
    if amax > 2.0**-100:
        highest = 2.0 ** math.floor(math.log2(format.largest))
        if rounding == "down":
            assert highest <= amax / s < 2 * highest
        else:
            assert format.largest / 2 < amax / s <= format.largest * (1 + 2**-23)
    cut = (x / scale.float()).clamp(-format.largest, format.largest)
    assert torch.equal(values.float(), round_to(cut, format))


def test_rounded_down_the_largest_number_of_a_block_is_cut():
    x = torch.ones(32)
    x[0] = 511.0
    assert down(x).wide()[0] == 448 and mxfp8.quantize(x).wide()[0] == 512
    assert [down(x).scale.float().item(), mxfp8.quantize(x).scale.float().item()] == [1, 2]


def test_the_ends_of_e8m0():
    x = torch.tensor([0.0, 2.0**-140, 2.0**127, math.inf, math.nan]).repeat_interleave(32)
    values, scale = mxfp8.quantize(x)
    assert scale.float()[:3].tolist() == [1, 2.0**-127, 2.0**119]
    found = fp8.Scaled(values, scale).wide().view(5, 32)
    assert (found[0] == 0).all() and (found[2] == 2.0**127).all() and found[3:].isnan().all()


def test_blocks_are_of_the_last_dim_and_know_nothing_of_one_another():
    x = randoms(3, 4, 96) * torch.logspace(-3, 3, 12).view(3, 4, 1)
    whole = mxfp8.quantize(x)
    assert whole.scale.shape == (3, 4, 3)
    for row in range(3):
        for block in range(3):
            there = row, slice(None), slice(32 * block, 32 * block + 32)
            assert torch.equal(mxfp8.quantize(x[there]).wide(), whole.wide()[there])


def test_bits_of_a_number():
    x = randoms(64, 64)
    assert 8 * fp8.quantize(x).nbytes / x.numel() == 8 + 32 / x.numel()
    assert 8 * mxfp8.quantize(x).nbytes / x.numel() == 8.25


def test_up_loses_less_than_down():
    x = randoms(256, 256)
    assert error(mxfp8.quantize(x).wide(), x) < 0.95 * error(down(x).wide(), x)


# Products.


@pytest.mark.parametrize("quantize", [fp8.quantize, mxfp8.quantize, down])
def test_what_fp8_can_hold_is_multiplied_exactly(quantize):
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-8, 9, (rows, 64), generator=draw).float() for rows in (5, 7))
    a[:, ::32] = b[:, ::32] = 7 / 4  # of 448, with the scale 2^-8 of a block
    a[0, 0] = b[0, 0] = 7 * 2.0**6 if quantize is fp8.quantize else 8
    assert torch.equal(fp8_linear.matmul(quantize(a), quantize(b)), a @ b.T)


@pytest.mark.parametrize("formats", [(E4M3, E4M3), (E5M2, E4M3)], ids=str)
def test_products_are_torchs_scaled_mm(formats):
    a, b = fp8.quantize(randoms(16, 64), formats[0]), fp8.quantize(randoms(32, 64, seed=1), formats[1])
    theirs = torch._scaled_mm(a.values, b.values.T, a.scale, b.scale, out_dtype=torch.float32)
    torch.testing.assert_close(fp8_linear.matmul(a, b), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("quantize, gradients", [(fp8.quantize, E5M2), (mxfp8.quantize, E4M3)], ids=["fp8", "mxfp8"])
def test_a_layer_is_three_products_each_of_operands_quantized_along_what_is_added_up(quantize, gradients):
    x, weight = randoms(2, 32, 96).requires_grad_(), randoms(64, 96, seed=1).requires_grad_()
    dy = randoms(2, 32, 64, seed=2)
    y = fp8_linear.linear(x, weight, quantize, gradients)
    y.backward(dy)
    rows, down_ = x.detach().view(64, 96), dy.view(64, 64)
    wide = lambda x, format=E4M3: quantize(x, format).wide()  # noqa: E731
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
    assert abs(losses(partial(fp8_linear.linear, quantize=quantize)) - exact) < 0.1 * exact


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
    run = layer(partial(fp8_linear.linear, quantize=quantize), 4096, Cluster(device, 1))
    products = [event for event in run.trace.of(0) if event.name == "fp8_matmul"]
    nbytes = 2 * (4096 * 4096 + scales) + 2 * 4096 * 4096  # two operands of fp8, one result of bf16
    expected = costs.kernel_seconds(device, 2 * 4096**3, nbytes, "float8")
    assert [event.end - event.start for event in products] == pytest.approx([expected] * 3)
    assert expected == pytest.approx(2 * 4096**3 / device.peak_of("bfloat16") / 2, rel=1e-3)


@pytest.mark.parametrize("quantize", [fp8.quantize, mxfp8.quantize])
def test_casts_cost_more_than_they_save_in_a_small_layer(quantize):
    small, large = (
        layer(F.linear, size).seconds / layer(partial(fp8_linear.linear, quantize=quantize), size).seconds
        for size in (512, 8192)
    )
    assert small < 1 and 1.4 < large < 2


@pytest.mark.parametrize(
    "quantize, cluster, rule",
    [
        (fp8.quantize, "A100 node", "A100 80GB has no rate for float8: it computes in float64, float32, tf32"),
        (mxfp8.quantize, "H100 node", "H100 has no rate for mxfp8: it computes in .*, float8, int8"),
    ],
)
def test_a_device_without_it_says_so(quantize, cluster, rule):
    run = tinydist.launch(lambda: fp8_linear.linear(torch.ones(32, 32), torch.ones(32, 32), quantize), 1)
    with pytest.raises(ValueError, match=rule):
        run.on(cluster).seconds  # noqa: B018


# Errors.


def test_errors():
    with pytest.raises(ValueError, match=r"mxfp8\.quantize: the last dim must be a multiple of 32, got \[3, 33\]"):
        mxfp8.quantize(torch.ones(3, 33))
    for quantize in (fp8.quantize, mxfp8.quantize):
        with pytest.raises(ValueError, match="format must be 'fp8 e4m3' or 'fp8 e5m2', got bf16"):
            quantize(torch.ones(32), "bf16")
    with pytest.raises(ValueError, match=r"matmul: it takes \[m, k\] and \[n, k\], got \[2, 4\] and \[4, 3\]"):
        fp8_linear.matmul(fp8.quantize(torch.ones(2, 4)), fp8.quantize(torch.ones(4, 3)))
