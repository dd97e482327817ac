"""Rounding: its grids, its bound; GPTQ beside the least squares that it stands for, and where it cannot gain; AWQ."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tinydist.quantization import Inputs, awq, bits_per_weight, gptq, inputs_of, output_error, round_to_nearest
from tinydist.quantization.gptq import inverse_factor

SEEDS = st.integers(0, 2**20)


def inputs_like(x):
    zeros = torch.zeros(x.shape[1], dtype=torch.float64)
    inputs = Inputs(torch.diag(zeros), zeros)
    inputs.add(x)
    return inputs


def case(seed, tokens=400, width=64, rows=16):
    """Weights, and inputs whose channels are alike."""
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.randn(width, width, generator=generator) / width**0.5
    x = torch.randn(tokens, width, generator=generator) @ (mixed + 0.5 * torch.eye(width))
    return torch.randn(rows, width, generator=generator), inputs_like(x)


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(seed=SEEDS, bits=st.integers(2, 8), group=st.sampled_from([8, 16, 64]))
def test_rounding_stays_within_half_a_step(seed, bits, group):
    w, _ = case(seed)
    rounded = round_to_nearest(w, bits, group)
    for a, b in zip(w.split(group, 1), rounded.split(group, 1)):
        step = (a.amax(1).clamp(min=0) - a.amin(1).clamp(max=0)) / (2**bits - 1)
        assert ((a - b).abs() <= 1.01 * step[:, None]).all()  # half a step; half more where 0 was put on the grid
        assert all(len(row.unique()) <= 2**bits for row in b)


def test_bits():
    assert bits_per_weight(4, 128) == 4.25 and bits_per_weight(3, 32) == 4


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(seed=SEEDS)
def test_the_rest_makes_up_as_least_squares_would(seed):
    """For the error of the first column: the argmin of |error g_0 - moved G|, by the equations of least squares."""
    _, inputs = case(seed, width=8, rows=3)
    upper = inverse_factor(inputs.gram, damping=1e-9)
    error = torch.tensor([0.7, -0.2, 0.4], dtype=torch.float64)
    moved = torch.outer(error / upper[0, 0], upper[0, 1:])
    expected = torch.outer(error, torch.linalg.solve(inputs.gram[1:, 1:], inputs.gram[1:, 0]))
    assert torch.allclose(-moved, expected, atol=1e-5)


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(seed=SEEDS, bits=st.sampled_from([2, 3, 4]))
def test_where_inputs_are_uncorrelated_gptq_is_rounding(seed, bits):
    w, inputs = case(seed)
    diagonal = Inputs(torch.diag(inputs.gram.diagonal()), inputs.size, inputs.tokens)
    assert torch.allclose(gptq(w, diagonal, bits, 16), round_to_nearest(w, bits, 16), atol=1e-6)


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_where_they_are_correlated_it_loses_less(bits):
    for seed in range(5):
        w, inputs = case(seed)
        nearest, better = (
            output_error(w, each, inputs) for each in (round_to_nearest(w, bits, 16), gptq(w, inputs, bits, 16))
        )
        assert better < 0.9 * nearest


def test_awq_is_never_worse_than_rounding_and_gains_where_few_channels_are_large():
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(400, 64, generator=generator)
        w = torch.randn(16, 64, generator=generator)
        plain, few = inputs_like(x), inputs_like(x * torch.where(torch.arange(64) % 16 == 0, 30.0, 1.0))
        nearest = round_to_nearest(w, 3, 64)
        assert output_error(w, awq(w, plain, 3, 64), plain) <= output_error(w, nearest, plain)
        assert output_error(w, awq(w, few, 3, 64), few) < 0.5 * output_error(w, nearest, few)


def test_inputs_of_a_model():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    batches = [torch.randn(3, 5, 4), torch.randn(2, 5, 4)]
    found = inputs_of(model, batches)
    x = torch.cat([each.flatten(0, 1) for each in batches]).double()
    assert found.keys() == {"0", "2"} and found["0"].tokens == 25
    assert torch.allclose(found["0"].gram, x.T @ x) and torch.allclose(found["0"].magnitude, x.abs().mean(0))
    assert not model[0]._forward_pre_hooks


@pytest.mark.parametrize("method", [awq, gptq])
def test_groups_must_divide(method):
    w, inputs = case(0)
    with pytest.raises(ValueError, match=r"weight must be \[out, in\], in a multiple of group \(48\), got \[16, 64\]"):
        method(w, inputs, 4, 48)


@pytest.mark.parametrize("method", [awq, gptq])
def test_inputs_must_be_those_of_the_layer(method):
    w, inputs = case(0)
    with pytest.raises(ValueError, match=rf"{method.__name__}: inputs have 64 channels, but weight is \[16, 32\]"):
        method(w[:, :32], inputs, 4, 16)
    nothing = Inputs(torch.zeros(64, 64, dtype=torch.float64), torch.zeros(64, dtype=torch.float64))
    with pytest.raises(ValueError, match="no input has passed the layer"):
        method(w, nothing, 4, 16)
    with pytest.raises(ValueError, match=f"{method.__name__}: inputs must be finite"):
        method(w, inputs_like(torch.full((2, 64), torch.nan)), 4, 16)
    with pytest.raises(ValueError, match=r"weight and rounded must be \[out, in\], got \[16, 64\] and \[1, 64\]"):
        output_error(w, w[:1], inputs)


@pytest.mark.parametrize("number", [torch.nan, torch.inf, 1e6])
@pytest.mark.parametrize("method", [round_to_nearest, awq, gptq])
def test_steps_of_fp16_hold_no_such_weight(method, number):
    w, inputs = case(0)
    w[0, 0] = number
    with pytest.raises(ValueError, match=f"{method.__name__}: scales are in fp16, so numbers must be finite"):
        method(w, 4, 16) if method is round_to_nearest else method(w, inputs, 4, 16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_half_precision_are_rounded_as_in_fp32(dtype):
    """The range of a group may exceed fp16's."""
    w = torch.tensor([[65504.0, -65504.0, 1.0, 0.0]], dtype=dtype)
    w = w.clamp(-65280, 65280)  # of bf16, the next number is above 65504
    assert round_to_nearest(w, 2, 4).equal(round_to_nearest(w.float(), 2, 4).to(dtype))
