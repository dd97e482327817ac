"""Progressive layer dropping (PLD): a step leaves out random layers, deep ones more often, and more of them with time.

    theta(t) = (1 - theta) exp(-gamma t) + theta          from 1 down to theta
    p_i(t)   = 1 - i/L (1 - theta(t))                     keep probability of layer i of L, from 1

    layer 1 of 12 is kept with 0.96, layer 12 with 0.5        theta(t) = 0.5

A layer that is kept adds 1/p of what it adds without dropping, so on average the residual stream gets the same; in eval
mode all layers run, as they are. Expected FLOPs of the layers: 1 - (1 - theta(t)) (L + 1) / 2L of all, so 1/4 less in a
deep model with theta = 0.5. The whole batch leaves a layer out, so the FLOPs are not computed, rather than masked.

Sources: Zhang and He 2020, Progressive Layer Dropping, section 4, as its readers cite it; DeepSpeed up to 0.19.6,
runtime/progressive_layer_drop.py, which has theta(t) alone: the layers are the model's own work. The authors' BERT
(DeepSpeedExamples at 26e33218, bing_bert/nvidia/modelingpreln_layerdrop.py) counts i from 0, and divides by the
probability of the next layer.
"""

import math

import torch
from torch import nn

from ..rules import amount, count, part, validate


@validate(theta=part, gamma=amount)
def theta_schedule(theta=0.5, gamma=0.001):
    """step -> theta(t). With gamma = 100/T, of a run of T steps, it is there after 5 % of them."""
    return lambda step: (1.0 - theta) * math.exp(-gamma * step) + theta


@validate(theta=part, layers=count)
def keep_probabilities(theta, layers):
    return [1 - i / layers * (1 - theta) for i in range(1, layers + 1)]


@validate(theta=part, layers=count)
def expected_part(theta, layers):
    """Of the FLOPs of all layers."""
    return sum(keep_probabilities(theta, layers)) / layers


class LayerDrop(nn.Module):
    """``block``, which adds to the residual stream, with probability ``keep``."""

    @validate(block=nn.Module)
    def __init__(self, block):
        super().__init__()
        self.block, self.keep, self.ran = block, 1.0, True

    def forward(self, x):  # [B, T, D]
        if not self.training:
            return self.block(x)
        self.ran = self.keep >= 1 or torch.rand(()).item() < self.keep
        if not self.ran:
            return x
        return self.block(x) if self.keep >= 1 else x + (self.block(x) - x) / self.keep


@validate(model=nn.Module)
def layer_drop(model):
    """Wrap all blocks of ``model``, in place. Returns the function that sets theta(t)."""
    wrapped = [LayerDrop(block) for block in model.blocks]
    for place, layer in enumerate(wrapped):
        model.blocks[place] = layer

    def set_theta(theta):
        for layer, keep in zip(wrapped, keep_probabilities(theta, len(wrapped))):
            layer.keep = keep

    return set_theta
