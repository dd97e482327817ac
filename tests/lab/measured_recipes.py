"""What training holds by a recipe: a step of it, run on fake tensors, and its bytes by purpose, from the ledger.

Weights get gradients by backward, an optimizer makes a step on them or on fp32 copies, and what is then alive is
counted.
"""

import torch
from torch import nn

from tinydist.annotate import purpose
from tinydist.launching.launch import launch
from tinydist.syllabus.registry import load

BLOCK, PURPOSES, RECIPES = (
    getattr(load("04_mixed_precision", "training_bytes"), name) for name in ("BLOCK", "PURPOSES", "RECIPES")
)
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MOMENTS = {"SGD": 0, "momentum": 1, "Adam": 2}  # numbers that it remembers of each parameter


class Optimizer:
    """SGD, momentum or Adam, with moments in a format; of Adam without correction of the bias."""

    def __init__(self, weights, recipe):
        self.weights, self.recipe = weights, recipe
        count = MOMENTS[recipe.optimizer]
        with purpose("optimizer states"):
            self.moments = [[stored(torch.zeros_like(w), recipe.moments) for _ in range(count)] for w in weights]

    def step(self, gradients):
        for w, g, moments in zip(self.weights, gradients, self.moments):
            g = g.to(w.dtype)
            before = [read(moment) for moment in moments]
            after = [0.9 * m + 0.1 * value for m, value in zip(before, (g, g * g))]
            direction = [g, *after[:1]][-1] if len(after) < 2 else after[0] / (after[1].sqrt() + 1e-8)
            w -= 1e-3 * direction.to(w.dtype)
            for moment, new in zip(moments, after):
                for kept, value in zip(moment, stored(new, self.recipe.moments)):
                    kept.copy_(value)


def stored(tensor, format):
    """As the tensors that are kept: in 8 bits, whole numbers up to 127 and what they are multiplied by."""
    if format != "8 bit":
        return (tensor.to(DTYPES[format]),)
    blocks = tensor.float().view(-1, BLOCK)
    scale = blocks.abs().amax(1, keepdim=True) / 127 + 1e-12
    return (blocks / scale).round().to(torch.int8).view(tensor.shape), scale


def read(moment):
    if len(moment) == 1:
        return moment[0].float()
    whole, scale = moment
    return (whole.view(-1, BLOCK).float() * scale).view(whole.shape)


def train(recipe, sizes):
    """A step. What it returns stays alive, and is all that does."""
    weights = [nn.Parameter(torch.ones(size, dtype=DTYPES[recipe.weights])) for size in sizes]
    for w in weights:
        (w * w).sum().backward()
    model = nn.ParameterList(weights)  # now the ledger knows what they are
    first = DTYPES[recipe.gradients[0]]
    with torch.no_grad():
        with purpose("gradients"):
            gradients = [w.grad.to(first, copy=True) for w in weights]
            added_up = [g.to(DTYPES[recipe.gradients[-1]]) for g in gradients]
        for w in weights:
            w.grad = None
        with purpose("optimizer states"):
            masters = [w.detach().float() for w in weights] if recipe.master else weights
        optimizer = Optimizer(masters, recipe)
        optimizer.step(added_up)
        for w, master in zip(weights, masters):
            w.copy_(master)
    return model, gradients, added_up, masters, optimizer


def measured(recipe, sizes):
    """Bytes by purpose at the end of a step."""
    run = launch(train, 1, recipe, sizes, backend="simulated", fake=True)
    *_, (_, held) = run.memory[0].over_time()
    assert not any(held[each] for each in held if each not in PURPOSES), held
    return {each: held[each] for each in PURPOSES}
