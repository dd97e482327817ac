"""Naive attention: the definition, with the whole score matrix in memory (materialized).

    scores = q k^T / sqrt(d)    [T, S]      each query against each key
    weights = softmax(scores)   [T, S]      of a row: exp(score) / sum of exp(scores)
    out = weights v             [T, d]      a mean of the values

Softmax is safe: exp overflows float32 from 89 on, so each row's maximum is subtracted first, which does not change the
result. Masked scores are -inf. A fully masked row has no maximum to subtract; its output is zero here, not NaN.

Costs per head: 4 T S d FLOPs, and 2 T S elements written to memory and read back: the scores and the weights. They
dominate memory and bandwidth; ``flash`` avoids them.

Source: Vaswani et al. 2017, Attention Is All You Need, section 3.2.1.
"""

import math

import torch

from ..rules import finite, floats, validate
from .groups import check_shapes, fold, unfold
from .mask import mask_of


@validate(mask=torch.Tensor, scale=finite)
def attention(q, k, v, *, causal=False, window=None, offset=None, mask=None, scale=None):
    """A mean of the values for each query: [B, H, T, e].

    q [B, H, T, d], k [B, G, S, d], v [B, G, S, e]: query head h reads head h // (H/G) of keys and values.
    causal, window, offset:  which keys a query sees, see ``AttentionMask``.
    mask:                  bool, broadcastable to [B, H, T, S]; True: attend. Combined with the former (logical and).
    scale:                 of the scores; None: 1/sqrt(d).

    A query that sees nothing gets zeros. Raises ``ValueError`` and ``TypeError`` for shapes and dtypes that do not fit.
    """
    check_shapes("attention", q, k, v)
    (B, H, T, d), (G, S) = q.shape, k.shape[1:3]
    visible = mask_of("attention", q, k, causal, window, offset).visible(slice(0, T), slice(0, S), q.device)
    if mask is not None:
        _check_mask(mask, (B, H, T, S))
        visible = mask if visible is None else mask & visible
    scores = unfold(fold(q, G) @ k.mT, H) * (1 / math.sqrt(d) if scale is None else float(scale))  # [B, H, T, S]
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    return unfold(fold(safe_softmax(scores), G) @ v, H)  # [B, H, T, e]


@validate(scores=floats)
def safe_softmax(scores):
    """Softmax over the last dim. Rows of -inf alone become zeros."""
    if scores.shape[-1] == 0:
        return scores
    lowest = torch.finfo(scores.dtype).min  # so that -inf is not subtracted from -inf
    weights = (scores - scores.detach().amax(-1, keepdim=True).clamp(min=lowest)).exp()
    return weights / weights.sum(-1, keepdim=True).clamp(min=1)  # the maximum alone gives 1


def _check_mask(mask, shape):
    if mask.dtype != torch.bool:
        raise TypeError(f"attention: mask must be bool, True where a query attends to a key, got {mask.dtype}")
    sizes = [1] * (4 - mask.ndim) + list(mask.shape)
    if len(sizes) != 4 or any(size not in (1, whole) for size, whole in zip(sizes, shape)):
        raise ValueError(f"attention: mask {list(mask.shape)} does not broadcast to [B, H, T, S] = {list(shape)}")
