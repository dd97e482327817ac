"""Published figures of sparse attention: how much longer, how much faster, and how many keys a query reads.

LONGER      longest sequences that train, with sparse attention over with stored scores
NSA         Native Sparse Attention's sizes, the keys that a query reads with a cache, and its kernels' speed-ups
FLEX        FlexAttention's training speed over other kernels: the least and the most
"""

from typing import NamedTuple


class Longer(NamedTuple):
    """Dense keeps all activations; sparse recomputes each layer."""

    layers: int
    width: int
    heads: int
    parameters: float
    times: float  # the longest sequence over that of dense attention
    faster: float  # a training step, at most


# DeepSpeed, docs/_posts/2020-09-09-sparse-attention.md (read): one V100 of 32 GB, batch size 1, layout not said.
# Sizes of BERT: Devlin et al. 2018, section 3.
LONGER = {
    "BERT base": Longer(12, 768, 12, 110e6, 10, 6.3),
    "BERT large": Longer(24, 1024, 16, 340e6, 16, 5.3),
}


class Selection(NamedTuple):
    block: int  # compressed tokens: of so many each, one every ``stride``
    stride: int
    selected: int  # blocks that a query selects, of ``size`` tokens
    size: int
    window: int
    keys: dict  # tokens of the sequence -> keys and values that a query reads
    forward: float  # times faster than Triton's FlashAttention-2, at 64k tokens on an A100
    backward: float


# Yuan et al. 2025, arXiv 2502.11089, section 5, table 4 and figure 6 (read).
NSA = Selection(32, 16, 16, 64, 512, {8192: 2048, 16384: 2560, 32768: 3584, 65536: 5632}, forward=9.0, backward=6.0)

# Dong et al. 2024, FlexAttention, arXiv 2412.05496, section 6.2 (quoted in an excerpt): training, over FlashAttention-2
# where that has the variant, and over SDPA with a mask where it has not.
FLEX = {"FlashAttention-2": (0.68, 1.43), "SDPA with a mask": (5.49, 8.00)}
