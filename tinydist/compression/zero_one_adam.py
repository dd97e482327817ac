"""0/1 Adam: no warm-up. The variance moves seldom, gradients go in one bit between, and in the end steps send nothing.

    variance    every k steps   gradients are averaged in full, v moves; k doubles after 16 of them
                between         compressed_all_reduce(gradient), v stays
    local       every step      each rank steps by its own gradient, and adds up what it has stepped: u
                every h steps   u is taken back, u sqrt(v) goes in one bit, and all take the mean of what they stepped;
                                h doubles from time to time, up to 16

Source: Lu et al., Maximizing Communication Efficiency for Large-scale Training via 0/1 Adam, 2022, algorithm 1;
defaults (32,678 among them, where 32,768 may have been meant) and arithmetic are those of DeepSpeed 0.19.6.
"""

import torch
import torch.distributed as dist

from ..annotate import purpose
from ..rules import count, validate, whole
from .adam import RULES, AdamBase, moments, move, move_square
from .compressed_all_reduce import compressed_all_reduce
from .one_bit_adam import average, errors_of


@validate(**RULES, var_freeze_step=whole, var_update_scaler=count, group=dist.ProcessGroup)
@validate(local_step_scaler=count, local_step_clipper=count)
class ZeroOneAdam(AdamBase):
    """Optimizer for gradients that nobody has averaged, as ``OneBitAdam``.

    var_freeze_step:    last step in which the variance may move; then local steps begin
    var_update_scaler:  updates of the variance until their interval doubles
    local_step_scaler:  local steps until their interval doubles; local_step_clipper: the largest interval

    Weights differ between ranks until the next step that sends; afterwards by what was rounded in taking steps back.
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0.0,
        var_freeze_step=100_000,
        var_update_scaler=16,
        local_step_scaler=32_678,
        local_step_clipper=16,
        group=None,
    ):
        schedule = dict(var_interval=1, var_updates=0, local_interval=1, local_steps=0, rates=0.0)
        super().__init__(params, lr, betas, eps, weight_decay, **schedule)
        self.var_freeze_step, self.var_update_scaler = var_freeze_step, var_update_scaler
        self.local_step_scaler, self.local_step_clipper, self.group = local_step_scaler, local_step_clipper, group

    def _group_step(self, parameters, options):
        if options["step"] <= self.var_freeze_step:
            self._variance_step(parameters, options)
        else:
            self._local_step(parameters, options)

    def _variance_step(self, parameters, options):
        exact = options["step"] % options["var_interval"] == 0
        if exact:
            average(parameters, self.group)
        else:
            self._check_variances(parameters)
        for p in parameters:
            _, v = moments(self.state[p], p)
            if exact:
                move_square(v, p.grad, options["betas"][1])
            else:
                self._all_reduce(p.grad, p)
            self._move(p, options)
        options["var_updates"] += exact
        if options["var_updates"] == self.var_update_scaler:
            options["var_updates"], options["var_interval"] = 0, 2 * options["var_interval"]

    def _local_step(self, parameters, options):
        self._check_variances(parameters)
        options["rates"] += options["lr"]
        sends = options["step"] % options["local_interval"] == 0
        for p in parameters:
            state = self.state[p]
            if "stepped" not in state:  # errors were of gradients, and are of steps from now on
                state.pop("worker_error", None)
                with purpose("optimizer states"):
                    state["stepped"] = torch.zeros_like(p)
            state["stepped"].add_(self._move(p, options))
            if sends and options["rates"]:
                self._agree(p, state, options)
        options["local_steps"] += 1
        if sends:
            options["rates"] = 0.0
        if options["local_steps"] == self.local_step_scaler:
            options["local_steps"] = 0
            options["local_interval"] = min(self.local_step_clipper, 2 * options["local_interval"])

    def _move(self, p, options):
        """One step of Adam with ``p.grad``; what was added to ``p``."""
        m, v = moments(self.state[p], p)
        move(m, p.grad, options["betas"][0])
        update = m / (v.sqrt() + options["eps"])
        if options["weight_decay"]:
            update += options["weight_decay"] * p
        step = -options["lr"] * update
        p.add_(step)
        return step

    def _agree(self, p, state, options):
        """All ranks take the mean of what they have stepped; and m becomes the mean that made it."""
        m, v = moments(state, p)
        stepped, scale = state["stepped"], v.sqrt() + options["eps"]
        p.sub_(stepped)
        stepped.mul_(scale)
        self._all_reduce(stepped, p)
        m.copy_(stepped / -options["rates"])
        p.add_(stepped / scale)
        stepped.zero_()

    def _all_reduce(self, tensor, p):
        errors = errors_of(self.state[p], p.numel(), p.device, self.group)
        compressed_all_reduce(tensor, *errors, self.group)
