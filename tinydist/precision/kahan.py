"""Kahan summation: what is left over when a weight is rounded is kept beside it, in 16 bits, and added the next time.

    bytes a parameter, with Adam:        2 weight | 2 gradient | 2 rest + 4 + 4 moments = 14

    wide = weight + rest + update              in fp32
    weight = wide, rounded;  rest = wide - weight, rounded

Weight and rest are a master weight in two halves: 8 bits and 8 more in bf16, which has 16 of fp32's 24 then. An update
to a weight of 1 is lost when it is below 2^-17, not below 2^-8.

Sources: Kahan 1965, Further remarks on reducing truncation errors; Zamirai et al. 2020, Revisiting BFloat16 Training
(for weights).
"""

import torch

from ..annotate import purpose
from ..rules import several, takes
from .fp32_steps import FP32Steps


@takes(params=several, optimizer_class=type[torch.optim.Optimizer])
class Kahan(FP32Steps):
    """An optimizer for 16-bit parameters that keeps what rounding leaves over, in 16 bits too. Used as FP32Steps.

        optimizer = Kahan(model.parameters(), torch.optim.AdamW, lr=1e-3)

    The rest of a parameter that was written to is added all the same: at most half of its last bit.
    """

    def __init__(self, params, optimizer_class=torch.optim.AdamW, **options):
        self.rests = {}
        super().__init__(params, optimizer_class, **options)

    def _begin(self, p):
        with purpose("optimizer states"):
            self.rests[p] = torch.zeros_like(p, requires_grad=False)
        return super()._begin(p)

    def _wide(self, p):
        return super()._wide(p) + self.rests[p]

    def _narrow(self, p, wide):
        super()._narrow(p, wide)
        self.rests[p].copy_(wide - p)
