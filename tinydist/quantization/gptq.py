"""GPTQ: round a column, and let the columns not yet rounded compensate its error.

    minimize |X (w - v)^T|^2, one column of w [out, in] after the other

    v_i    = nearest(w_i)
    e      = (w_i - v_i) / U_ii                  U^T U = (G + damping)^-1, U upper triangular (Cholesky)
    w_j   -= e U_ij    for j > i                 what the later columns change, so that the outputs change least

        column   0    1    2    3
                 v    w'   w'   w'        error of 0 spread over 1 to 3
                 v    v    w"   w"        of 1 over 2 and 3

Inputs that are alike let one weight stand in for another; if they were uncorrelated, G would be diagonal, no error
could be made up for, and this would be rounding to nearest. A group's grid is taken from its weights as they are when
it is reached. Costs O(in^3) for the factor and O(out in^2) for the columns. Source: Frantar, Ashkboos, Hoefler and
Alistarh 2022, GPTQ, section 3 and algorithm 1; IST-DASLab/gptq, gptq.py (read). Their updates in blocks of 128 columns,
which save memory traffic, are left out.
"""

import torch

from ..rules import count, floats, positive, validate, within
from .grid import check_groups, grid_of
from .inputs import Inputs


@validate(weight=floats, inputs=Inputs, bits=within(2, 8), group=count, damping=positive)
@torch.no_grad()
def gptq(weight, inputs, bits=4, group=128, damping=0.01):
    """``weight`` [out, in], rounded. ``damping``: of the mean of G's diagonal, is added to it."""
    check_groups("gptq", weight, group)
    inputs.check("gptq", weight)
    w, upper = weight.detach().double().clone(), inverse_factor(inputs.gram, damping)
    rounded = torch.empty_like(w)
    for i in range(w.shape[1]):
        if i % group == 0:
            grid = grid_of(w[:, i : i + group], bits)
        rounded[:, i : i + 1] = grid.nearest(w[:, i : i + 1])
        error = (w[:, i] - rounded[:, i]) / upper[i, i]
        w[:, i + 1 :] -= torch.outer(error, upper[i, i + 1 :])
    return rounded.to(weight.dtype)


def inverse_factor(gram, damping):
    """U [in, in], upper triangular, of the formulas above."""
    damped = gram + float(damping) * gram.diagonal().mean().clamp(min=1e-12) * torch.eye(len(gram), dtype=gram.dtype)
    return torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(damped)), upper=True)
