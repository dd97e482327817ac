"""Master weights: the model computes with 16 bits, the optimizer adds up in 32, and keeps those 32.

    bytes a parameter, with Adam:        2 weight | 2 gradient | 4 master weight + 4 + 4 moments = 16

7.5 billion parameters: 15 GB of weights, 120 GB in training, three quarters of it the optimizer's.

Sources: Micikevicius et al. 2017, Mixed Precision Training, section 3.1; Rajbhandari et al. 2019, ZeRO, section 3.1.
"""

import torch

from ..annotate import purpose
from ..rules import several, takes
from .fp32_steps import FP32Steps


@takes(params=several, optimizer_class=type[torch.optim.Optimizer])
class MasterWeights(FP32Steps):
    """An optimizer for 16-bit parameters that keeps fp32 copies of them, and steps on those. Used as FP32Steps.

        optimizer = MasterWeights(model.parameters(), torch.optim.AdamW, lr=1e-3)

    A parameter that was written to, by ``load_state_dict`` say, is the new master weight.
    """

    def __init__(self, params, optimizer_class=torch.optim.AdamW, **options):
        self.versions = {}  # parameter -> how often it was written to
        super().__init__(params, optimizer_class, **options)

    def _begin(self, p):
        self.versions[p] = p._version
        with purpose("optimizer states"):
            return p.detach().float()

    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            if p in self.versions:
                self.state[p]["master"] = self.masters[p]

    def _wide(self, p):
        if p._version != self.versions[p]:
            self.masters[p].copy_(p)
        return self.masters[p]

    def _narrow(self, p, wide):
        if wide is not self.masters[p]:  # it is loaded
            self.masters[p].copy_(wide)
        super()._narrow(p, wide)
        self.versions[p] = p._version

    def _end(self, master):
        """It stays."""
