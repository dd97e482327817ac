"""Forward once more, in backward: of a method that is recomputed only the inputs are held, not all that it makes.

    full         recompute(model.blocks)                                    a block's input: 2sbh bytes, 1/3 more FLOPs
    selective    recompute([block.attention for block in model.blocks], "mix")
                 not the weights of attention, of which there are 5as/h      34sbh bytes, 1 to 3 % more

The random numbers are the same again, so dropout's masks are, too. What the method sends, it sends again.
Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016; Korthikanti et al. 2022, section 5.
"""

from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

from .rules import each_of, takes


@takes(modules=each_of(nn.Module, 0), method=str)
def recompute(modules, method="forward"):
    """From now on, in place. Raises ``ValueError`` where one of the modules has no such method."""
    for module in modules:
        if not callable(getattr(module, method, None)):
            raise ValueError(f"recompute: {type(module).__name__} has no method {method!r}")
        setattr(module, method, partial(checkpoint, getattr(module, method), use_reentrant=False))
