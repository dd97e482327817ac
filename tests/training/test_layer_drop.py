"""Progressive layer drop: probabilities, what a layer adds on average, FLOPs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tinydist.model import GPT, GPTConfig
from tinydist.training.layer_drop import LayerDrop, expected_part, keep_probabilities, layer_drop, theta_schedule
from tinydist.training.meters import flops_of_step

CONFIG = GPTConfig(context=8, layers=4, dim=8, heads=2)


def test_theta_is_the_one_that_deepspeed_0_19_6_gave():
    theta = theta_schedule(0.5, 0.001)
    assert [round(theta(step), 4) for step in (0, 100, 1000, 10_000)] == [1.0, 0.9524, 0.6839, 0.5]


@given(some.floats(0, 1), some.integers(1, 50))
def test_deep_layers_are_left_out_more_often(theta, layers):
    keep = keep_probabilities(theta, layers)
    assert keep == sorted(keep, reverse=True) and keep[-1] == pytest.approx(theta)
    assert expected_part(theta, layers) == pytest.approx(1 - (1 - theta) * (layers + 1) / (2 * layers))


def test_on_average_a_layer_adds_what_it_adds_without_dropping():
    torch.manual_seed(0)
    layer, x = LayerDrop(torch.nn.Linear(4, 4)), torch.randn(3, 4)
    layer.keep, added = 0.25, []
    for _ in range(4000):
        added.append(layer(x) - x)
        assert layer.ran == bool(added[-1].any())
    right = layer.block(x) - x
    deviation = right.abs() * (0.75 / 0.25 / 4000) ** 0.5  # of the mean, of a number that is 1/p with p
    assert ((torch.stack(added).mean(0) - right).abs() < 5 * deviation).all()


def test_all_layers_run_as_they_are_in_eval_mode_and_with_theta_1():
    torch.manual_seed(0)
    model, tokens = GPT(CONFIG), torch.zeros(1, 8, dtype=torch.int64)
    right = model(tokens)
    set_theta = layer_drop(model)
    assert torch.equal(model(tokens), right)
    set_theta(0.0)
    assert torch.equal(model.eval()(tokens), right)
    assert [layer.keep for layer in model.blocks] == [0.75, 0.5, 0.25, 0.0]


def test_a_layer_that_is_left_out_costs_no_flops():
    torch.manual_seed(0)
    model, tokens, ran = GPT(CONFIG), torch.zeros(2, 8, dtype=torch.int64), set()
    layer_drop(model)(0.3)
    for _ in range(8):
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            model.loss(tokens, tokens).backward()
        layers = sum(layer.ran for layer in model.blocks)
        ran.add(layers)
        assert counter.get_total_flops() == flops_of_step(CONFIG, 2, 8, [8] * layers)
    assert len(ran) > 1
