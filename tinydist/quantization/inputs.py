"""Statistics of a layer's inputs: all that GPTQ and AWQ need of the data.

    y = x w^T for inputs X [tokens, in], so rounding w to v changes the outputs by

    |X (w - v)^T|^2 = tr (w - v) G (w - v)^T        with G = X^T X [in, in]

A few thousand tokens are enough to estimate G. Published: 128 sequences of 2,048 tokens (Frantar et al. 2022, section
4).
"""

from dataclasses import dataclass

import torch
from torch import nn

from ..rules import each_of, floats, validate


@dataclass
class Inputs:
    gram: torch.Tensor  # [in, in], X^T X
    size: torch.Tensor  # [in], the sum of |x|
    tokens: int = 0

    def add(self, x):
        x = x.detach().reshape(-1, len(self.size)).to(self.gram)
        self.gram += x.T @ x
        self.size += x.abs().sum(0)
        self.tokens += len(x)

    def check(self, operation, weight):
        """Are there inputs, of the size that ``weight`` takes?"""
        if len(self.size) != weight.shape[1]:
            raise ValueError(f"{operation}: inputs have {len(self.size)} channels, but weight is {list(weight.shape)}")
        if not self.tokens:
            raise ValueError(f"{operation}: no input has passed the layer")
        if not self.gram.isfinite().all():
            raise ValueError(f"{operation}: inputs must be finite")

    @property
    def magnitude(self):
        """The mean |x| of each channel: [in]."""
        return self.size / max(self.tokens, 1)


@validate(model=nn.Module, batches=each_of(torch.Tensor))
@torch.no_grad()
def inputs_of(model, batches):
    """Name of each ``nn.Linear`` -> its ``Inputs``, as ``model(batch)`` meets them. In float64."""
    found, hooks = {}, []
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear):
            zeros = torch.zeros(layer.in_features, dtype=torch.float64)
            found[name] = Inputs(torch.diag(zeros), zeros)
            hooks.append(layer.register_forward_pre_hook(lambda _, args, each=found[name]: each.add(args[0])))
    try:
        for batch in batches:
            model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return found


@validate(weight=floats, rounded=floats, inputs=Inputs)
def output_error(weight, rounded, inputs):
    """|X (w - v)^T|^2 / |X w^T|^2, of ``weight`` w and ``rounded`` v, both [out, in]. NaN where X w^T is 0."""
    if weight.ndim != 2 or weight.shape != rounded.shape:
        shapes = f"{list(weight.shape)} and {list(rounded.shape)}"
        raise ValueError(f"output_error: weight and rounded must be [out, in], got {shapes}")
    inputs.check("output_error", weight)
    w, change = weight.to(inputs.gram), (weight - rounded).to(inputs.gram)
    return (((change @ inputs.gram) * change).sum() / ((w @ inputs.gram) * w).sum()).item()
