"""16-bit weights that lose no small updates: the rounding error is kept in fp32, kept in 16 bits, or left to chance.

                          bytes per parameter, with Adam
    MasterWeights         2 weight | 2 gradient | 4 master weight + 4 + 4 moments = 16    all is kept
    Kahan                 2 weight | 2 gradient | 2 rest          + 4 + 4 moments = 14    16 more bits are kept
    StochasticRounding    2 weight | 2 gradient |                   4 + 4 moments = 12    right on average

Master weights of a model of 7.5 billion parameters: 15 GB of weights, 120 GB in training, three quarters of it the
optimizer's. In Kahan summation weight and rest are a master weight in two halves: 8 bits and 8 more in bf16, which has
16 of fp32's 24 then. An update to a weight of 1 is lost when it is below 2^-17, not below 2^-8.

Stochastic rounding adds random bits before it truncates, so that the expectation is the fp32 number; each step adds
noise of half a spacing or so. bf16 is the upper half of fp32, so integers do it; ``round_to(..., "stochastic")`` does
it for any format, slowly.

    fp32       s eeeeeeee mmmmmmm | mmmmmmmmmmmmmmmm
    noise                       + | nnnnnnnnnnnnnnnn      each of 2^16 numbers as likely
    bf16       s eeeeeeee mmmmmmm | truncated             the carry: up with the chance of (what is cut) / 2^16

Sources: Micikevicius et al. 2017, Mixed Precision Training, section 3.1, and Rajbhandari et al. 2019, ZeRO, section 3.1
(master weights); Kahan 1965, Further remarks on reducing truncation errors; Gupta et al. 2015, Deep Learning with
Limited Numerical Precision, section 3.1 (stochastic rounding); Zamirai et al. 2020, Revisiting BFloat16 Training.
"""

import torch

from ..annotate import purpose
from ..rules import several, validate, within
from .fp32_optimizer import FP32Optimizer

CUT = 2**16  # what the lower half of a float32 can be


@validate(params=several, optimizer_class=type[torch.optim.Optimizer])
class MasterWeights(FP32Optimizer):
    """An optimizer for 16-bit parameters that keeps fp32 copies of them, and steps on those. Used as FP32Optimizer.

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

    def _upcast(self, p):
        if p._version != self.versions[p]:
            self.masters[p].copy_(p)
        return self.masters[p]

    def _round(self, p, master):
        if master is not self.masters[p]:  # it is loaded
            self.masters[p].copy_(master)
        super()._round(p, master)
        self.versions[p] = p._version

    def _end(self, master):
        """It stays."""


@validate(params=several, optimizer_class=type[torch.optim.Optimizer])
class Kahan(FP32Optimizer):
    """An optimizer for 16-bit parameters that stores the rounding error in 16 bits, too. Same interface as
    FP32Optimizer.

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

    def _upcast(self, p):
        return super()._upcast(p) + self.rests[p]

    def _round(self, p, master):
        super()._round(p, master)
        self.rests[p].copy_(master - p)


@validate(params=several, optimizer_class=type[torch.optim.Optimizer], seed=within(0, 2**62))
class StochasticRounding(FP32Optimizer):
    """An optimizer for bfloat16 parameters that rounds them stochastically. Used as FP32Optimizer.

        optimizer = StochasticRounding(model.parameters(), torch.optim.AdamW, lr=1e-3)

    All replicas must draw the same, or they drift apart: a generator of its own begins with ``seed`` on every rank.
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

    def _round(self, p, master):
        noise = torch.randint(CUT, p.shape, generator=self.generators[p.device], dtype=torch.int32, device=p.device)
        super()._round(p, cut(master, noise))

    def state_dict(self):
        """With the state of the generators, so that a resumed run draws the same noise."""
        return super().state_dict() | {"generators": [each.get_state() for each in self.generators.values()]}

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        for generator, state in zip(self.generators.values(), state_dict.get("generators", ())):
            generator.set_state(state)


def cut(wide, noise):
    """Numbers of bfloat16, as float32: ``noise``, from 0 to 65535, is added to the bits before the lower half goes."""
    bits = wide.view(torch.int32) + noise
    return torch.where(wide.isfinite(), bits.bitwise_and(-CUT).view(torch.float32), wide)
