"""Rotary embedding: a token's position is an angle by which its queries and keys are turned.

    pair i of the head dim, at position p:      turned by p base^(-2i/d)

    (x0, x1) at p = 0      at p = 1            q at p . k at j  depends on the contents and p - j alone:
         |                   /                 turning both by the same angle leaves the product as it is

Fast pairs tell near positions apart, slow ones far positions. Nothing is learned; keys are turned before they are kept
in a cache. Costs O(T d) a head.

For texts s times as long as those of its training a model knows angles, but not all: fast pairs have been all around,
slow ones only a part of it, and farther on are angles never seen. ``Yarn`` slows the slow ones down s times, so that
what they show was seen, and leaves the fast ones, which tell neighbors apart.

    turns within the training's context     fewer than 1     ...     more than 32
    pair i turns by                         angle / s       a mix       angle          and scores are sharpened

Sources: Su et al. 2021, RoFormer, section 3.2.2: pairs are neighbors (0, 1), (2, 3), ... Others pair i with
i + d/2, which is the same up to the order of the weights' rows. Peng et al. 2023, YaRN (version 2), sections 3.2 and
3.4; the mix is that of their published code, linear in i, where the paper has it linear in the turns.
"""

import math
from dataclasses import dataclass

import torch

from ..rules import count, floats, positive, takes


@takes(factor=positive, context=count, base=positive, fast=positive, slow=positive)
@dataclass(frozen=True)
class Yarn:
    """Angles for texts ``factor`` times as long as the ``context`` of training, in place of a ``base`` alone."""

    factor: float
    context: int = 4096  # tokens
    base: float = 10_000.0
    fast: float = 32  # pairs that turn so often within the context stay as they are
    slow: float = 1  # and those that turn no more than that are slowed down

    def __post_init__(self):
        if self.fast <= self.slow:
            raise ValueError(f"Yarn: fast pairs must turn more often than slow ones, got {self.fast} and {self.slow}")

    @takes(frequencies=floats)
    def slowed(self, frequencies):
        """Of pairs, [d/2]."""
        start = max(math.floor(self._pair_that_turns(self.fast, len(frequencies))), 0)
        stop = min(math.ceil(self._pair_that_turns(self.slow, len(frequencies))), 2 * len(frequencies) - 1)
        pairs = torch.arange(len(frequencies), dtype=frequencies.dtype, device=frequencies.device)
        slow = ((pairs - start) / max(stop - start, 0.001)).clamp(0, 1)
        return frequencies * (1 - slow) + frequencies / self.factor * slow

    @property
    def sharpening(self):
        """By how much scores are larger: 1/t in the paper."""
        return (0.1 * math.log(max(self.factor, 1)) + 1) ** 2

    def _pair_that_turns(self, turns, pairs):
        return pairs * math.log(self.context / (2 * math.pi * turns)) / math.log(self.base)


def angles(value):
    """a finite number > 0 or a Yarn"""
    return isinstance(value, Yarn) or positive(value)


def score_scale(dim, base):
    """What scores are multiplied by: 1/sqrt(dim), and more with a ``Yarn``."""
    return (base.sharpening if isinstance(base, Yarn) else 1) / math.sqrt(dim)


@takes(x=floats, positions=torch.Tensor, base=angles)
def rotate(x, positions, base=10_000.0):
    """Turn x [B, H, T, d] to ``positions``, [T] or [B, T]; base: of the angles, or a ``Yarn``, whose scores are yours.

    Raises ``ValueError`` where d is odd.
    """
    d = x.shape[-1]
    if d % 2:
        raise ValueError(f"rotate: head_dim must be even, got {d}")
    if x.ndim != 4 or list(positions.shape) not in ([x.shape[2]], [x.shape[0], x.shape[2]]):
        shapes = f"got x {list(x.shape)}, positions {list(positions.shape)}"
        raise ValueError(f"rotate: takes x [B, H, T, d] and positions [T] or [B, T], {shapes}")
    dtype = torch.promote_types(x.dtype, torch.float32)
    turn = (positions[..., None] * frequencies(d, base, dtype, x.device)).unsqueeze(-3)  # [1, T, d/2] or [B, 1, T, d/2]
    even, odd, cos, sin = x[..., 0::2], x[..., 1::2], turn.cos(), turn.sin()
    turned = even * cos - odd * sin, even * sin + odd * cos
    return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)


def frequencies(dim, base, dtype=None, device=None):
    """By what angle each pair turns from one position to the next, [dim / 2]."""
    if isinstance(base, Yarn):
        return base.slowed(frequencies(dim, base.base, dtype, device))
    return float(base) ** (-torch.arange(0, dim, 2, dtype=dtype, device=device) / dim)
