"""Activation recomputation (checkpointing): save only a method's inputs, and run its forward again in backward.

    full         recompute(model.blocks)                                    a block's input: 2sbh bytes, 1/3 more FLOPs
    selective    recompute([block.attention for block in model.blocks], "mix")
                 recomputes the attention weights, 5as/h of activations      34sbh bytes, 1 to 3 % more

The RNG state is restored, so dropout masks are the same. The method's communication is repeated.
Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016; Korthikanti et al. 2022, section 5.
"""

from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

from .rules import each_of, validate


@validate(modules=each_of(nn.Module, 0), method=str)
def recompute(modules, method="forward"):
    """Wrap ``method`` of each module, in place. Raises ``ValueError`` if one has no such method."""
    for module in modules:
        if not callable(getattr(module, method, None)):
            raise ValueError(f"recompute: {type(module).__name__} has no method {method!r}")
        setattr(module, method, partial(checkpoint, getattr(module, method), use_reentrant=False))
