"""1-bit LAMB: a warm-up of LAMB, then momenta in one bit per element, and the trust ratios of the warm-up.

    warm-up       LAMB without bias correction, ratios within [0.01, 10]; a tensor's moving mean of ratios is kept
    at its end    each momentum gets a factor that makes all of one scale, so that one scale serves all of them
    from then on  all momenta are one buffer: compressed_all_reduce. The mean ratio is multiplied by a factor: how much
                  smaller the variance has become since, as far as the momenta tell

Source: Li et al., 1-bit LAMB, 2021, algorithm 1; the arithmetic is that of DeepSpeed 0.19.6.
"""

import torch
import torch.distributed as dist

from ..rules import validate, whole
from .adam import RULES, AdamBase, moments, move, move_square
from .compressed_all_reduce import compressed_all_reduce
from .lamb import norm, trust_ratio
from .one_bit_adam import average, errors_of

RATIOS = 0.01, 10.0  # of a tensor, in the warm-up
MEAN = 0.9  # of the moving mean of ratios
FACTORS, CHANGE = (0.5, 4.0), 0.1  # of the ratio afterwards, and how much of it may change in a step


@validate(**RULES, freeze_step=whole, group=dist.ProcessGroup)
class OneBitLamb(AdamBase):
    """Optimizer for gradients that nobody has averaged, as ``OneBitAdam``. Every parameter has one in each step."""

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, freeze_step=100_000, group=None
    ):
        super().__init__(params, lr, betas, eps, weight_decay)
        self.freeze_step, self.group = freeze_step, group

    def _group_step(self, parameters, options):
        if options["step"] <= self.freeze_step:
            average(parameters, self.group)
            for p in parameters:
                self._warm_update(p, self.state[p], **options)
        elif parameters:
            self._check_variances(parameters)
            self._compressed_step(parameters, options)

    def _warm_update(self, p, state, step, lr, betas, eps, weight_decay, **_):
        m, v = moments(state, p)
        move(m, p.grad, betas[0])
        move_square(v, p.grad, betas[1])
        update = m / (v.sqrt() + eps)
        if weight_decay:
            update += weight_decay * p
        ratio = between(RATIOS, trust_ratio(p, update))
        if ratio != 1.0:
            state["ratio"] = MEAN * state.get("ratio", 0.0) + (1 - MEAN) * ratio
        p.add_(-lr * ratio * update)

    def _compressed_step(self, parameters, options):
        before = [moments(self.state[p], p)[0].clone() for p in parameters]
        self._fit_scales(parameters)
        for p in parameters:
            state = self.state[p]
            move(state["exp_avg"], p.grad, options["betas"][0]).mul_(state["scale"])
        self._all_reduce([self.state[p]["exp_avg"] for p in parameters], self.state[parameters[0]])
        for p, m_before in zip(parameters, before):
            self._update(p, self.state[p], m_before, **options)

    def _fit_scales(self, parameters):
        """Once: a factor for each momentum, so that all are of the mean scale."""
        if "scale" in self.state[parameters[0]]:
            return
        momenta = [self.state[p]["exp_avg"] for p in parameters]
        scales = [(torch.linalg.vector_norm(m) / m.numel() ** 0.5).item() for m in momenta]
        for p, scale in zip(parameters, scales):
            state = self.state[p]
            state["scale"] = sum(scales) / len(scales) / scale if scale else 1.0
            state["exp_avg_sq_fresh"], state["factor"] = state["exp_avg_sq"].clone(), 1.0

    def _all_reduce(self, momenta, state):
        flat = torch.cat([m.flatten() for m in momenta])
        compressed_all_reduce(flat, *errors_of(state, flat.numel(), flat.device, self.group), self.group)
        for m, mean in zip(momenta, flat.split([m.numel() for m in momenta])):
            m.copy_(mean.view_as(m))

    def _update(self, p, state, m_before, lr, betas, eps, weight_decay, **_):
        m, v = moments(state, p)
        m.div_(state["scale"])
        gradient = (m - m_before * betas[0]) / (1 - betas[0])  # the one that this momentum would have come from
        fresh = move_square(state["exp_avg_sq_fresh"], gradient, betas[1])
        root = v.sqrt() + eps
        plain = update = m / root
        factor = (root / (fresh.sqrt() + eps)).max().item()
        if weight_decay:
            update = plain + weight_decay * p
            moved = min(1.0, (norm(plain) / norm(update)).item())
            factor = factor * moved + (1 - moved)
        last = state["factor"]
        state["factor"] = between((last * (1 - CHANGE), last * (1 + CHANGE)), between(FACTORS, factor))
        p.add_(-lr * (state.get("ratio", 0.0) * state["factor"]) * update)


def between(limits, value):
    return min(max(value, limits[0]), limits[1])
