"""Naive attention: as it is defined, with all the scores written down.

    scores = q k^T / sqrt(d)    [T, S]      each query against each key
    weights = softmax(scores)   [T, S]      of a row: exp(score) / sum of exp(scores)
    out = weights v             [T, d]      a mean of the values

Softmax is safe: exp overflows float32 from 89 on, so each row is first lowered by its maximum, which changes nothing.
Scores that are masked are -inf. A row with nothing but those has no maximum to lower by; its mean is over nothing, and
is zero here, not NaN.

Costs, a head: 4 T S d FLOPs, and 2 T S numbers to write and read again: the scores and the weights. Of those the
slow memory is full, and its wires are busy; ``flash`` does without.

Source: Vaswani et al. 2017, Attention Is All You Need, section 3.2.1.
"""

import math

import torch

from ..rules import finite, floats, takes
from .band import band_of
from .groups import check_shapes, fold, unfold


@takes(mask=torch.Tensor, scale=finite)
def attention(q, k, v, *, causal=False, window=None, past=None, mask=None, scale=None):
    """A mean of the values for each query: [B, H, T, e].

    q [B, H, T, d], k [B, G, S, d], v [B, G, S, e]: query head h reads head h // (H/G) of keys and values.
    causal, window, past:  who sees whom, see ``Band``.
    mask:                  bool, to be broadcast to [B, H, T, S]; True: this query sees this key. Added to the former.
    scale:                 of the scores; None: 1/sqrt(d).

    A query that sees nothing gets zeros. Raises ``ValueError`` and ``TypeError`` for shapes and dtypes that do not fit.
    """
    check_shapes("attention", q, k, v)
    (B, H, T, d), (G, S) = q.shape, k.shape[1:3]
    visible = band_of("attention", q, k, causal, window, past).visible(slice(0, T), slice(0, S), q.device)
    if mask is not None:
        _check_mask(mask, (B, H, T, S))
        visible = mask if visible is None else mask & visible
    scores = unfold(fold(q, G) @ k.mT, H) * (1 / math.sqrt(d) if scale is None else float(scale))  # [B, H, T, S]
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    return unfold(fold(safe_softmax(scores), G) @ v, H)  # [B, H, T, e]


@takes(scores=floats)
def safe_softmax(scores):
    """Softmax over the last dim. Rows of -inf alone become zeros."""
    if scores.shape[-1] == 0:
        return scores
    lowest = torch.finfo(scores.dtype).min  # so that -inf is not subtracted from -inf
    weights = (scores - scores.detach().amax(-1, keepdim=True).clamp(min=lowest)).exp()
    return weights / weights.sum(-1, keepdim=True).clamp(min=1)  # the maximum alone gives 1


def _check_mask(mask, shape):
    if mask.dtype != torch.bool:
        raise TypeError(f"attention: mask must be bool, True where a query sees a key, got {mask.dtype}")
    sizes = [1] * (4 - mask.ndim) + list(mask.shape)
    if len(sizes) != 4 or any(size not in (1, whole) for size, whole in zip(sizes, shape)):
        raise ValueError(f"attention: mask {list(mask.shape)} does not broadcast to [B, H, T, S] = {list(shape)}")
