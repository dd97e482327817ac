"""A stage of a pipeline that notes which gradients come to its outputs, and what they should be.

Microbatches are counted by the calls of forward. A gradient is that of a microbatch if it points where that one's does:
its size says by what the loss was divided.
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, ROWS, LAYERS = 8, 16, 8
TENSOR = ROWS * WIDTH * 4  # bytes
HELD = (LAYERS + 1) * TENSOR  # by a microbatch on a rank: its input, and what each layer makes


class Stage(nn.Module):
    def __init__(self, number):
        super().__init__()
        generator = torch.Generator().manual_seed(number)
        self.weights = nn.ParameterList(
            [torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5 for _ in range(LAYERS)]
        )
        self.calls, self.arrived = 0, {}  # microbatch -> the gradient of its output
        self.ahead = 0  # forwards before the first backward

    def forward(self, x):
        number, self.calls = self.calls, self.calls + 1
        for weight in self.weights:
            x = torch.tanh(x @ weight)
        x.register_hook(lambda gradient: self.note(number, gradient))
        return x

    def note(self, number, gradient):
        """As plain numbers: a tensor would be held."""
        self.ahead = self.ahead or self.calls
        self.arrived[number] = gradient.tolist()


def batch(microbatches):
    """[(inputs, targets)]"""
    generator = torch.Generator().manual_seed(100)
    return [tuple(torch.randn(2, ROWS, WIDTH, generator=generator).unbind()) for _ in range(microbatches)]


@cache
def in_one_process(stages, microbatches):
    """(gradients of outputs, [stage][microbatch]; gradients of weights, [stage]; the mean loss)."""
    model, arrived, losses = [Stage(number) for number in range(stages)], [], []
    for inputs, targets in batch(microbatches):
        for stage in model:
            inputs = stage(inputs)
        losses.append(F.mse_loss(inputs, targets))
    loss = sum(losses) / microbatches
    loss.backward()
    arrived = [[torch.tensor(stage.arrived[number]) for number in range(microbatches)] for stage in model]
    return arrived, [[weight.grad for weight in stage.weights] for stage in model], loss.item()


def alike(one, other):
    """Do they point the same way?"""
    return float(F.cosine_similarity(one.flatten(), other.flatten(), dim=0)) > 0.999
