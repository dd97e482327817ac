"""FP4 in blocks: the rules of the scales, unbiased rounding, and a linear layer whose parts can be left out."""

import pytest
import torch
from precision.eight_bits import error, randoms

from tinydist.precision import FORMATS, fp4, round_to

E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_sixteen_numbers():
    there = round_to(torch.linspace(-8, 8, 4001), "fp4 e2m1").unique()
    assert there.tolist() == sorted({sign * value for value in E2M1 for sign in (1, -1)})
    assert FORMATS["fp4 e2m1"].bits == 4


@pytest.mark.parametrize("quantize, block", [(fp4.nvfp4, 16), (fp4.mxfp4, 32)])
def test_values_are_e2m1_and_each_block_has_a_scale(quantize, block):
    x = randoms(4, 64) * torch.logspace(-3, 3, 4).unsqueeze(1)
    found = quantize(x)
    assert found.scale.shape == (4, 64 // block)
    assert set(found.values.float().abs().unique().tolist()) <= set(E2M1)
    assert error(found.dequantize(), x) < 0.2


def test_scales_of_mx_are_powers_of_two_and_those_of_nv_are_e4m3():
    x = randoms(64, 64)
    mantissas, _ = torch.frexp(fp4.mxfp4(x).scale)
    assert (mantissas == 0.5).all()
    found = fp4.nvfp4(x)
    tensor = x.abs().max() / (6 * 448)
    in_e4m3 = found.scale / tensor
    torch.testing.assert_close(in_e4m3, in_e4m3.to(torch.float8_e4m3fn).float(), rtol=1e-6, atol=0)
    torch.testing.assert_close(in_e4m3.max(), torch.tensor(448.0))
    assert error(found.dequantize(), x) < error(fp4.mxfp4(x).dequantize(), x)


def test_rounded_down_a_scale_of_mx_cuts():
    x = torch.full((32,), 1.0)
    x[0] = 7.0
    assert fp4.mxfp4(x, scales="down").dequantize()[0] == 6 and fp4.mxfp4(x).dequantize()[0] == 8


def test_square_blocks_are_the_same_both_ways():
    x = randoms(32, 48)
    one, other = fp4.nvfp4(x, square=True).dequantize(), fp4.nvfp4(x.T, square=True).dequantize()
    assert torch.equal(one, other.T)
    assert not torch.equal(fp4.nvfp4(x).dequantize(), fp4.nvfp4(x.T).dequantize().T)


def test_stochastic_rounding_is_right_on_average_and_nearest_loses_what_is_small():
    x = torch.ones(1, 16) * 0.1
    x[0, 0] = 6.0
    generator = seeded()
    mean = torch.stack([fp4.nvfp4(x, "stochastic", generator=generator).dequantize() for _ in range(2000)]).mean(0)
    torch.testing.assert_close(mean, x, rtol=0, atol=0.03)
    assert fp4.nvfp4(x).dequantize()[0, 1:].count_nonzero() == 0


def test_zeros_stay_zeros():
    for found in (fp4.nvfp4(torch.zeros(16, 16)), fp4.mxfp4(torch.zeros(2, 32))):
        assert (found.dequantize() == 0).all()


def test_a_hadamard_transform_of_both_operands_changes_no_product():
    a, b = randoms(8, 32), randoms(8, 32, seed=1)
    signs = fp4.Recipe(generator=seeded()).signs()
    assert set(signs.tolist()) <= {1.0, -1.0}
    torch.testing.assert_close(fp4.hadamard(a, signs) @ fp4.hadamard(b, signs).T, a @ b.T, rtol=1e-4, atol=1e-4)
    outlier = torch.zeros(1, 16)
    outlier[0, 3] = 8.0
    assert fp4.hadamard(outlier, signs).abs().unique().tolist() == [2.0]


RECIPES = {"none": None, "nearest": fp4.Recipe("nearest", False, False), "whole": fp4.Recipe(generator=seeded())}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_linear_layer_is_near_the_exact_one_forward_and_backward(recipe):
    x, w = randoms(4, 32, 64).requires_grad_(), randoms(48, 64, seed=1).requires_grad_()
    upstream = randoms(4, 32, 48, seed=2)
    y = fp4.linear(x, w, recipe)
    found = torch.autograd.grad(y, [x, w], upstream)
    exact = torch.autograd.grad(x @ w.T, [x, w], upstream)
    assert y.shape == (4, 32, 48) and error(y, (x @ w.T)) < 0.2
    for one, other in zip(found, exact, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype and error(one, other) < 0.3


def test_what_is_no_multiple_of_a_block():
    with pytest.raises(ValueError, match=r"^nvfp4: the last dim must be a multiple of 16, got \[3, 17\]$"):
        fp4.nvfp4(torch.ones(3, 17))
    with pytest.raises(ValueError, match=r"^nvfp4: the last two dims must be a multiple of 16, got \[3, 16\]$"):
        fp4.nvfp4(torch.ones(3, 16), square=True)
    with pytest.raises(ValueError, match=r"^mxfp4: the last dim must be a multiple of 32, got \[16\]$"):
        fp4.mxfp4(torch.ones(16))
    with pytest.raises(ValueError, match=r"^hadamard: the last dim must be a multiple of 16, got \[8\]$"):
        fp4.hadamard(torch.ones(8), torch.ones(16))
