"""Weights on a grid: groups of a row's weights share a step and an offset; each weight goes to the nearest of 2^bits
points.

    group      -0.9  0.1  0.6 ...      low -0.9, step (0.6 - -0.9) / 15 = 0.1
    codes         0   10   15          value = low + step code

    bits a weight = bits + 2 * 16 / group        4 bits, groups of 128: 4.25; of 32: 5

So rounding takes each weight for itself. What else can be done without training is in gptq.py (the weights not yet
rounded make up for an error) and awq.py (weights that meet large inputs get finer steps). All three give back weights
that lie on such grids, in the dtype they had: how much is lost can then be measured by the model itself.
"""

from typing import NamedTuple

import torch

from ..rules import count, floats, validate, within
from .blocks_of_32 import check_range


class Grid(NamedTuple):
    low: torch.Tensor  # [rows, 1]
    step: torch.Tensor  # [rows, 1]
    largest: int  # code

    def nearest(self, w):
        """[rows, columns] on the grid."""
        codes = ((w - self.low) / self.step).round().clamp(0, self.largest)
        return self.low + self.step * codes


def grid_of(w, bits):
    """From the least to the largest number of each row; 0 is a point of it, or outside."""
    low, high = w.amin(1, keepdim=True).clamp(max=0), w.amax(1, keepdim=True).clamp(min=0)
    step = ((high - low) / (2**bits - 1)).half().to(w.dtype).clamp(min=2.0**-24)
    return Grid((low / step).round() * step, step, 2**bits - 1)


def check_groups(operation, weight, group):
    if weight.ndim != 2 or not weight.shape[1] or weight.shape[1] % group:
        shape = list(weight.shape)
        raise ValueError(f"{operation}: weight must be [out, in], in a multiple of group ({group}), got {shape}")
    check_range(operation, weight)


@validate(weight=floats, bits=within(2, 8), group=count)
@torch.no_grad()
def round_to_nearest(weight, bits=4, group=128):
    """``weight`` [out, in], on grids of ``group`` weights of a row."""
    check_groups("round_to_nearest", weight, group)
    groups = weight.to(torch.promote_types(weight.dtype, torch.float32)).split(group, 1)
    return torch.cat([grid_of(each, bits).nearest(each) for each in groups], 1).to(weight.dtype)


@validate(bits=within(2, 8), group=count)
def bits_per_weight(bits, group):
    """A step and an offset for each group, of 16 bits each."""
    return bits + 32 / group
