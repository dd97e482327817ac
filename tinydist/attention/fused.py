"""Fused attention: torch's own, which computes scores, softmax and mean in one call, with our arguments.

    flash_attention     the same idea, in plain torch: a loop over tiles, to be read
    fused_attention     a kernel of torch's, for when attention is not what you look at

Which kernel that is depends on device, dtype and mask; on a CPU it is flash attention, written in C++.
"""

import torch.nn.functional as F

from ..rules import finite, takes
from .band import band_of
from .groups import check_shapes


@takes(scale=finite)
def fused_attention(q, k, v, *, causal=False, window=None, past=None, scale=None):
    """What ``attention(q, k, v)`` gives, arguments as there: [B, H, T, e]. Each query must see a key."""
    check_shapes("fused_attention", q, k, v)
    T, S, heads, groups = q.shape[2], k.shape[2], q.shape[1], k.shape[1]
    visible = band_of("fused_attention", q, k, causal, window, past).visible(slice(0, T), slice(0, S), q.device)
    return F.scaled_dot_product_attention(q, k, v, visible, scale=scale, enable_gqa=heads != groups)
