"""AWQ: weights that meet large inputs get finer steps, as channels are scaled before rounding and back after it.

    x w^T = (x / s) (w s)^T        s [in] > 0: w s is rounded; 1 / s goes into what comes before the layer

    s = magnitude^ratio            magnitude: mean |x| of a channel; ratio: tried from 0 (rounding) to below 1

A channel scaled by s > 1 has its error divided by s, as long as it does not become the largest of its group and makes
the step larger for all. Nothing is fitted but one ratio a layer. Source: Lin et al. 2023, AWQ, section 3.2 (equations 4
and 5); mit-han-lab/llm-awq, awq/quantize/auto_scale.py (read: 20 ratios, s divided by the root of its largest times its
smallest).
"""

import torch

from ..rules import count, floats, validate, within
from .grid import check_groups, round_to_nearest
from .inputs import Inputs, output_error

RATIOS = 20


@validate(weight=floats, inputs=Inputs, bits=within(2, 8), group=count)
@torch.no_grad()
def awq(weight, inputs, bits=4, group=128):
    """``weight`` [out, in], rounded with the ratio of the least ``output_error``, and scaled back."""
    check_groups("awq", weight, group)
    inputs.check("awq", weight)
    tried = [scaled_rounding(weight, inputs, ratio / RATIOS, bits, group) for ratio in range(RATIOS)]
    return min(tried, key=lambda each: output_error(weight, each, inputs))


def scaled_rounding(weight, inputs, ratio, bits, group):
    s = inputs.magnitude.clamp(min=1e-4) ** ratio
    s = (s / (s.max() * s.min()).sqrt()).to(weight.dtype)
    return round_to_nearest(weight * s, bits, group) / s
