"""LAMB: Adam's direction, and a length that fits each tensor: a step of lr times the norm of its weights.

    r     = m_hat / (sqrt(v_hat) + eps) + weight_decay w
    ratio = |w| / |r|, the trust ratio of a tensor (1 where a norm is 0)
    w    -= lr ratio r

A large batch allows a larger rate, but not for every tensor: where weights are small, Adam's steps, all of one size,
are a large part of them. Sends nothing: gradients are averaged before, by DDP.
Source: You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 minutes, 2020, algorithm 2.
"""

from ..rules import validate
from .adam import RULES, AdamBase, moments, move, move_square


@validate(**RULES)
class Lamb(AdamBase):
    """Optimizer. Equal to timm's with ``always_adapt=True`` and no clipping: a ratio for all, also without decay."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        super().__init__(params, lr, betas, eps, weight_decay)

    def _group_step(self, parameters, options):
        for p in parameters:
            self._update(p, self.state[p], **options)

    def _update(self, p, state, step, lr, betas, eps, weight_decay, **_):
        m, v = moments(state, p)
        move(m, p.grad, betas[0])
        move_square(v, p.grad, betas[1])
        root = v.sqrt() / (1 - betas[1] ** step) ** 0.5
        update = m / (1 - betas[0] ** step) / (root + eps)
        update += weight_decay * p
        p.add_(update, alpha=-lr * trust_ratio(p, update))


def trust_ratio(weights, update):
    """How long a step is beside one of Adam: |weights| / |update|."""
    weight_norm, update_norm = norm(weights), norm(update)
    return (weight_norm / update_norm).item() if weight_norm and update_norm else 1.0


def norm(tensor):
    return tensor.pow(2).sum().sqrt()
