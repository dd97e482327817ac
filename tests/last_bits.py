"""Random numbers whose last bits differ, as results of two processors do: what a notebook prints must survive that.

Importing this module changes PyTorch: of the random numbers that it draws a third become larger and a third smaller by
8 times the machine epsilon of their dtype, wherever weights and data are made. Sums of other processors differ by about
one epsilon, so a digit that survives this seldom differs there. What compares one run with another still finds equal
bits, since all ranks, threads and processes draw the same numbers.
"""

from functools import wraps

import torch

ULPS = 8


def shift_last_bits(drawn):
    if type(drawn) in (torch.Tensor, torch.nn.Parameter) and drawn.dtype in (torch.float32, torch.float64):
        # A simulated rank is not charged for it
        with torch.no_grad(), torch._C._DisableTorchDispatch():
            direction = torch.arange(drawn.numel(), dtype=drawn.dtype).remainder_(3).sub_(1).view(drawn.shape)
            drawn.addcmul_(drawn, direction, value=ULPS * torch.finfo(drawn.dtype).eps)
    return drawn


def with_other_last_bits(draw):
    @wraps(draw)
    def drawn(*arguments, **options):
        return shift_last_bits(draw(*arguments, **options))

    return drawn


for owner, name in ((torch, "randn"), (torch, "rand"), (torch.Tensor, "normal_"), (torch.Tensor, "uniform_")):
    setattr(owner, name, with_other_last_bits(getattr(owner, name)))
