"""Random layerwise token dropping (random-LTD): a layer computes a random part of the tokens; the others go round it.

    x [B, T, D] --gather--> K tokens of each row --block--> --scatter--> y [B, T, D]
        |                                                        ^
        +------------------ T - K tokens, as they are -----------+

Each layer and each row draws its own K tokens in each step; they keep their order, so a causal block sees of each token
only what comes before it. The first and the last layer compute all tokens. K grows to T during training, and in eval
mode nothing is dropped.

Costs: a layer's FLOPs are those of sequences of K tokens, 24 K D^2 + 4 K^2 D forward; gather and scatter move numbers.
Layer tokens of a step: B (K x layers that drop + T x the others).

Sources: Yao et al. 2022, Random-LTD, section 3; DeepSpeed 0.19.8, runtime/data_pipeline/data_routing.
"""

import math

import torch
from torch import nn

from ..rules import count, count_or_none, must, validate, whole


class RandomLTD(nn.Module):
    """``block`` on ``kept`` random tokens of each row; None: on all. ``layers`` share the random generator of torch."""

    @validate(block=nn.Module)
    def __init__(self, block):
        super().__init__()
        self.block, self.kept = block, None

    def forward(self, x):  # [B, T, D]
        rows, length = x.shape[:2]
        if not self.training or self.kept is None or self.kept >= length:
            return self.block(x)
        places = kept_places(rows, length, self.kept, x.device)  # [B, K]
        places = places.unsqueeze(2).expand(-1, -1, x.shape[2])  # [B, K, D]
        return x.scatter(1, places, self.block(x.gather(1, places)))


@validate(rows=count, length=count, kept=count)
def kept_places(rows, length, kept, device=None):
    """[B, K], sorted, each row without repetition."""
    if kept > length:
        raise ValueError(f"kept_places: kept ({kept}) must be <= length ({length})")
    return torch.ones(rows, length, device=device).multinomial(kept).sort(1).values


@validate(model=nn.Module)
def random_ltd(model):
    """Wrap all blocks of ``model`` but the first and the last, in place. Returns the function that sets ``kept``."""
    wrapped = [RandomLTD(block) for block in model.blocks[1:-1]]
    for place, layer in enumerate(wrapped, 1):
        model.blocks[place] = layer

    def keep(tokens):
        must("keep", "tokens", count_or_none, tokens)
        for layer in wrapped:
            layer.kept = tokens

    return keep


@validate(least=count, most=count, steps=count, multiple=count)
def kept_schedule(least, most, steps, multiple=16):
    """step -> K: straight up, rounded down to a multiple. Below the first multiple DeepSpeed's has 0, and ours 1."""
    if least > most:
        raise ValueError(f"kept_schedule: least ({least}) must be <= most ({most})")

    def kept(step):
        found = math.floor(float(step) / steps * (most - least) + least)
        return max(1, min(found - found % multiple, most))

    return kept


@validate(rows=count, kept=whole, length=count, dropping=whole, layers=count)
def layer_tokens(rows, kept, length, dropping, layers):
    """Of a step: tokens that the layers compute, of which ``dropping`` keep ``kept``."""
    if dropping > layers:
        raise ValueError(f"layer_tokens: dropping ({dropping}) must be <= layers ({layers})")
    return rows * (min(kept, length) * dropping + length * (layers - dropping))
