"""What the optimizers of this package share with Adam: options, moments, and a step of each parameter group.

    m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2        in float32, of each parameter

A subclass has ``_group_step(parameters, options)``. ``options["step"]`` counts from 1.
"""

import torch

from ..rules import amount, number, positive, several


def two_rates(value):
    """two numbers >= 0 and < 1"""
    return isinstance(value, tuple | list) and len(value) == 2 and all(number(each) and 0 <= each < 1 for each in value)


RULES = dict(params=several, lr=positive, betas=two_rates, eps=amount, weight_decay=amount)


class AdamBase(torch.optim.Optimizer):
    """``state``: further entries of each group, with their first values."""

    def __init__(self, params, lr, betas, eps, weight_decay, **state):
        numbers = dict(lr=float(lr), betas=betas, eps=float(eps), weight_decay=float(weight_decay), step=0)
        super().__init__(params, numbers | state)

    @torch.no_grad()
    def step(self, closure=None):
        loss = None if closure is None else torch.enable_grad()(closure)()
        for options in self.param_groups:
            options["step"] += 1
            self._group_step([p for p in options["params"] if p.grad is not None and p.numel()], options)
        return loss

    def _check_variances(self, parameters):
        """Where no gradient has moved a variance, a step would be m / eps."""
        for p in parameters:
            if "exp_avg_sq" not in self.state[p]:
                why = f"a parameter of shape {list(p.shape)} had no gradient in the warm-up, so its variance is 0"
                raise ValueError(f"{type(self).__name__}: {why}: a later freeze, or an optimizer of its own")


def moments(state, p):
    """m and v; zeros at first."""
    if "exp_avg" not in state:
        state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(p, dtype=torch.float32) for _ in range(2))
    return state["exp_avg"], state["exp_avg_sq"]


def move(average, gradient, beta):
    """One step of a moving average, in place."""
    return average.mul_(beta).add_(gradient, alpha=1 - beta)


def move_square(average, gradient, beta):
    """Of the gradient's square."""
    return average.mul_(beta).addcmul_(gradient, gradient, value=1 - beta)
