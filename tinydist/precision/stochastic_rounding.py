"""Stochastic rounding: chance decides whether a weight is rounded down or up, and so small updates add up on average.

    bytes a parameter, with Adam:        2 weight | 2 gradient | 4 + 4 moments = 12: nothing is kept

    fp32       s eeeeeeee mmmmmmm | mmmmmmmmmmmmmmmm
    noise                       + | nnnnnnnnnnnnnnnn      each of 2^16 numbers as likely
    bf16       s eeeeeeee mmmmmmm | cut                   the carry: up with the chance of (what is cut) / 2^16

The expectation is the fp32 number, and each step adds noise of half a spacing or so: the price. bf16 is the upper half
of fp32, so the bits do it; ``round_to(..., "stochastic")`` does it for any format, slowly.

All replicas must draw the same, or they drift apart: a generator of its own begins with ``seed`` on every rank.

Sources: Gupta et al. 2015, Deep Learning with Limited Numerical Precision, section 3.1; Zamirai et al. 2020, Revisiting
BFloat16 Training.
"""

import torch

from ..rules import several, takes, within
from .fp32_steps import FP32Steps

CUT = 2**16  # what the lower half of a float32 can be


@takes(params=several, optimizer_class=type[torch.optim.Optimizer], seed=within(0, 2**62))
class StochasticRounding(FP32Steps):
    """An optimizer for bfloat16 parameters that rounds them stochastically. Used as FP32Steps.

        optimizer = StochasticRounding(model.parameters(), torch.optim.AdamW, lr=1e-3)

    Raises ``ValueError`` for parameters of fewer bits than fp32 that are not bfloat16.
    """

    def __init__(self, params, optimizer_class=torch.optim.AdamW, seed=0, **options):
        self.seed, self.generators = seed, {}  # device -> generator
        super().__init__(params, optimizer_class, **options)

    def _begin(self, p):
        if p.dtype != torch.bfloat16:
            raise ValueError(f"StochasticRounding: parameters must be bfloat16 or float32, got {p.dtype}")
        if p.device not in self.generators:
            self.generators[p.device] = torch.Generator(p.device).manual_seed(self.seed)
        return super()._begin(p)

    def _narrow(self, p, wide):
        noise = torch.randint(CUT, p.shape, generator=self.generators[p.device], dtype=torch.int32, device=p.device)
        super()._narrow(p, cut(wide, noise))

    def state_dict(self):
        """With the state of the generators: what is loaded goes on with the same noise."""
        return super().state_dict() | {"generators": [each.get_state() for each in self.generators.values()]}

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        for generator, state in zip(self.generators.values(), state_dict.get("generators", ())):
            generator.set_state(state)


def cut(wide, noise):
    """Numbers of bfloat16, as float32: ``noise``, from 0 to 65535, is added to the bits before the lower half goes."""
    bits = wide.view(torch.int32) + noise
    return torch.where(wide.isfinite(), bits.bitwise_and(-CUT).view(torch.float32), wide)
