"""Rotary position embedding (RoPE): queries and keys are rotated by angles proportional to their position.

    pair i of the head dim, at position p:      rotated by p base^(-2i/d)

    (x0, x1) at p = 0      at p = 1            q at p . k at j  depends on the contents and p - j alone:
         |                   /                 rotating both by the same angle leaves the product unchanged

High-frequency pairs distinguish near positions, low-frequency ones far positions. Nothing is learned; keys are rotated
before they are cached. Costs O(T d) per head.

In a sequence s times as long as in training, low-frequency pairs reach angles that were never seen; high-frequency ones
have seen full rotations. ``Yarn`` divides the low frequencies by s (interpolation) and keeps the high ones, which
distinguish neighbors.

    rotations within the training context   fewer than 1     ...     more than 32
    angle of pair i                         angle / s       a mix       angle          and scores are scaled up

Sources: Su et al. 2021, RoFormer, section 3.2.2: pairs are neighbors (0, 1), (2, 3), ... Others pair i with i + d/2,
which is the same up to the order of the weights' rows. Peng et al. 2023, YaRN (version 2), sections 3.2 and 3.4; the
mix is that of their published code, linear in i; in the paper it is linear in the number of rotations.
"""

import math
from dataclasses import dataclass

import torch

from ..rules import count, floats, positive, validate


@validate(factor=positive, context=count, base=positive, fast=positive, slow=positive)
@dataclass(frozen=True)
class Yarn:
    """YaRN frequencies for sequences ``factor`` times as long as the training ``context``; replaces a ``base``."""

    factor: float
    context: int = 4096  # tokens
    base: float = 10_000.0
    fast: float = 32  # pairs with more rotations within the context stay as they are
    slow: float = 1  # pairs with fewer are slowed down

    def __post_init__(self):
        if self.fast <= self.slow:
            raise ValueError(f"Yarn: fast ({self.fast}) must be > slow ({self.slow}), both in rotations")

    @validate(frequencies=floats)
    def slowed(self, frequencies):
        """The frequencies of pairs [d/2], scaled."""
        start = max(math.floor(self._pair_with(self.fast, len(frequencies))), 0)
        stop = min(math.ceil(self._pair_with(self.slow, len(frequencies))), 2 * len(frequencies) - 1)
        pairs = torch.arange(len(frequencies), dtype=frequencies.dtype, device=frequencies.device)
        slow = ((pairs - start) / max(stop - start, 0.001)).clamp(0, 1)
        return frequencies * (1 - slow) + frequencies / float(self.factor) * slow

    @property
    def sharpening(self):
        """By how much scores are larger: 1/t in the paper."""
        return (0.1 * math.log(max(self.factor, 1)) + 1) ** 2

    def _pair_with(self, rotations, pairs):
        return pairs * math.log(self.context / (2 * math.pi * rotations)) / math.log(self.base)


def angles(value):
    """a finite number > 0 or a Yarn"""
    return isinstance(value, Yarn) or positive(value)


def score_scale(dim, base):
    """The softmax scale: 1/sqrt(dim), larger with a ``Yarn``."""
    return (base.sharpening if isinstance(base, Yarn) else 1) / math.sqrt(dim)


@validate(x=floats, positions=torch.Tensor, base=angles)
def rotate(x, positions, base=10_000.0):
    """Rotate x [B, H, T, d] to ``positions`` [T] or [B, T]. base: of the angles, or a ``Yarn`` (scale the scores, too).

    Raises ``ValueError`` where d is odd.
    """
    d = x.shape[-1]
    if d % 2:
        raise ValueError(f"rotate: head_dim must be even, got {d}")
    if x.ndim != 4 or list(positions.shape) not in ([x.shape[2]], [x.shape[0], x.shape[2]]):
        shapes = f"got x {list(x.shape)}, positions {list(positions.shape)}"
        raise ValueError(f"rotate: expected x [B, H, T, d] and positions [T] or [B, T], {shapes}")
    dtype = torch.promote_types(x.dtype, torch.float32)
    angle = (positions[..., None] * frequencies(d, base, dtype, x.device)).unsqueeze(-3)  # [1 or B, 1, T, d/2]
    even, odd, cos, sin = x[..., 0::2], x[..., 1::2], angle.cos(), angle.sin()
    rotated = even * cos - odd * sin, even * sin + odd * cos
    return torch.stack(rotated, dim=-1).flatten(-2).to(x.dtype)


def frequencies(dim, base, dtype=None, device=None):
    """The angle of each pair between one position and the next, [dim / 2]."""
    if isinstance(base, Yarn):
        return base.slowed(frequencies(dim, base.base, dtype, device))
    return float(base) ** (-torch.arange(0, dim, 2, dtype=dtype, device=device) / dim)
