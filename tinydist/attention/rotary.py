"""Rotary embedding: a token's position is an angle by which its queries and keys are turned.

    pair i of the head dim, at position p:      turned by p base^(-2i/d)

    (x0, x1) at p = 0      at p = 1            q at p . k at j  depends on the contents and p - j alone:
         |                   /                 turning both by the same angle leaves the product as it is

Fast pairs tell near positions apart, slow ones far positions. Nothing is learned; keys are turned before they are kept
in a cache. Costs O(T d) a head.

Source: Su et al. 2021, RoFormer, section 3.2.2: pairs are neighbors (0, 1), (2, 3), ... Others pair i with
i + d/2, which is the same up to the order of the weights' rows.
"""

import torch

from ..rules import floats, positive, takes


@takes(x=floats, positions=torch.Tensor, base=positive)
def rotate(x, positions, base=10_000.0):
    """Turn x [B, H, T, d] to ``positions``, [T] or [B, T]. Raises ``ValueError`` where d is odd."""
    d = x.shape[-1]
    if d % 2:
        raise ValueError(f"rotate: turns pairs, so the head dim must be even, got {d}")
    if x.ndim != 4 or list(positions.shape) not in ([x.shape[2]], [x.shape[0], x.shape[2]]):
        shapes = f"got x {list(x.shape)}, positions {list(positions.shape)}"
        raise ValueError(f"rotate: takes x [B, H, T, d] and positions [T] or [B, T], {shapes}")
    dtype = torch.promote_types(x.dtype, torch.float32)
    frequencies = float(base) ** (-torch.arange(0, d, 2, dtype=dtype, device=x.device) / d)
    angles = (positions[..., None] * frequencies).unsqueeze(-3)  # [1, T, d/2] or [B, 1, T, d/2]
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()
    return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)
