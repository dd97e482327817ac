"""Both halves together are backward, and neither does the other's work."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tinydist.model.gpt import Block, GPTConfig
from tinydist.pipeline_parallel.backward import SplitBackward, edge_of

D = 16


class Residual(nn.Module):
    """Parameters on branches of their own, one of them used twice."""

    def __init__(self):
        super().__init__()
        self.p, self.q = nn.Parameter(torch.randn(5, D)), nn.Parameter(torch.randn(D))

    def forward(self, x):
        return x * self.q + self.p.tanh() * self.q


def twice():
    layer = nn.Linear(D, D)
    return nn.Sequential(layer, nn.Tanh(), layer)


def block():
    return Block(GPTConfig(dim=D, heads=2))


MODULES = {
    "a layer": lambda: nn.Linear(D, D),
    "an MLP": lambda: nn.Sequential(nn.Linear(D, 3 * D), nn.GELU(), nn.Linear(3 * D, D)),
    "two blocks": lambda: nn.Sequential(block(), block()),
    "a layer used twice": twice,
    "branches": lambda: nn.Sequential(Residual(), nn.LayerNorm(D), Residual()),
    "no parameters": nn.Tanh,
    "frozen": lambda: nn.Linear(D, D).requires_grad_(False),
}


@pytest.mark.parametrize("name", MODULES)
def test_equals_backward(name):
    torch.manual_seed(0)
    module, x = MODULES[name](), torch.randn(2, 5, D, requires_grad=True)
    gradient = torch.randn(2, 5, D)
    weights = [parameter for parameter in module.parameters() if parameter.requires_grad]
    expected = torch.autograd.grad(module(x), [x, *weights], gradient)
    split = SplitBackward(edge_of(module(x)), gradient, x)
    found = split.input_gradient()
    torch.testing.assert_close(found, expected[0])
    assert x.grad is None and all(weight.grad is None for weight in weights)
    split.accumulate_weights()
    torch.testing.assert_close([weight.grad for weight in weights], list(expected[1:]))


def test_adds_to_the_gradients_that_are_there():
    layer, x = nn.Linear(D, D), torch.ones(3, D, requires_grad=True)
    for _ in range(2):
        split = SplitBackward(edge_of(layer(x).sum()), None, x)
        split.input_gradient()
        split.accumulate_weights()
    torch.testing.assert_close(layer.weight.grad, torch.full((D, D), 6.0))


def test_an_input_without_gradient_leaves_all_to_the_weights():
    embedding, tokens = nn.Embedding(7, D), torch.tensor([1, 2, 2])
    split = SplitBackward(edge_of(embedding(tokens)), torch.ones(3, D), tokens)
    assert split.input_gradient() is None and embedding.weight.grad is None
    split.accumulate_weights()
    assert embedding.weight.grad.sum(1).tolist() == [0, D, 2 * D, 0, 0, 0, 0]


def test_nothing_is_computed_twice():
    layers, x = nn.Sequential(*[nn.Linear(D, D) for _ in range(4)]), torch.ones(3, D, requires_grad=True)
    split = SplitBackward(edge_of(layers(x)), torch.ones(3, D), x)
    with FlopCounterMode(display=False) as inputs:
        split.input_gradient()
    with FlopCounterMode(display=False) as weights:
        split.accumulate_weights()
    assert inputs.get_total_flops() == weights.get_total_flops() == 4 * (2 * 3 * D * D)
