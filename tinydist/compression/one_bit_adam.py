"""1-bit Adam: a warm-up of Adam, then the variance is frozen, and momenta are averaged in one bit per element.

    warm-up       gradients are averaged, m and v move: Adam without bias correction       2 (p-1)/p 4n bytes
    from then on  m moves by this rank's own gradient, m = compressed_all_reduce(m)        1/32 of them
                  v stays: the step is m / (sqrt(v) + eps), so each weight has a rate of its own, for ever

It is the momentum that is sent and not the gradient: the same on all ranks after the step, and the error feedback of a
linear update adds up to nothing; through v, a square, it would not.
A warm-up of w of all steps sends w + (1-w)/16 of the bytes of 16-bit gradients: a fifth for the 15 % that is usual.
Source: Tang et al., 1-bit Adam, 2021, algorithm 1; the arithmetic is that of DeepSpeed 0.19.6.
"""

import torch.distributed as dist

from ..data_parallel.averaging import average_flat
from ..rules import validate, whole
from .adam import RULES, AdamBase, moments, move, move_square
from .compressed_all_reduce import compressed_all_reduce, error_buffers, padded_size


@validate(**RULES, freeze_step=whole, group=dist.ProcessGroup)
class OneBitAdam(AdamBase):
    """Optimizer for gradients that nobody has averaged: ``step`` communicates, so do not wrap the model in DDP.

    freeze_step:  steps of warm-up. 15 to 25 % of all are usual; frozen too early, v is too small, and it diverges.

    Errors are states of this rank: its state_dict is its own. In a world of another size they begin at zero.
    """

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, freeze_step=100_000, group=None
    ):
        super().__init__(params, lr, betas, eps, weight_decay)
        self.freeze_step, self.group = freeze_step, group

    def _group_step(self, parameters, options):
        warm = options["step"] <= self.freeze_step
        if warm:
            average(parameters, self.group)
        else:
            self._check_variances(parameters)
        for p in parameters:
            self._update(p, self.state[p], warm, **options)

    def _update(self, p, state, warm, lr, betas, eps, weight_decay, **_):
        m, v = moments(state, p)
        move(m, p.grad, betas[0])
        if warm:
            move_square(v, p.grad, betas[1])
        else:
            compressed_all_reduce(m, *errors_of(state, p.numel(), p.device, self.group), self.group)
        update = m / (v.sqrt() + eps)
        if weight_decay:
            update += weight_decay * p
        p.add_(-lr * update)


def average(parameters, group):
    if parameters:
        average_flat(parameters, group)


def errors_of(state, numel, device, group):
    """This rank's errors; new ones where there are none for a world of this size."""
    padded = padded_size(numel, group)
    sizes = [len(state.get(name, ())) for name in ("worker_error", "server_error")]
    if sizes != [padded, padded // dist.get_world_size(group)]:
        state["worker_error"], state["server_error"] = error_buffers(numel, group, device)
    return state["worker_error"], state["server_error"]
