"""Optimizer steps in fp32 on 16-bit weights: upcast, step, round back, one parameter at a time.

    weight (fp16, bf16)  -->  forward, backward  -->  gradient
       ^                                                 |  to fp32
       '---- rounded ----  master weight (fp32)  <-------'  m, v, update
                 |
                 '--> the rounding error:   lost               FP32Optimizer, here: 12 bytes per parameter with Adam
                                            kept, or random    see master_weights.py

An update is lost when it is below half the distance to the next number: for weights near 1, 2^-11 in fp16 and 2^-8
in bf16. In fp32 it is 2^-24, so small updates add up until the 16 bits see them, if something remembers them.
"""

import torch

from ..rules import each_of, floats, function, must, rate, several, stated, validate

groups_of_parameters = stated('a dict with "params"', lambda given: isinstance(given, dict) and "params" in given)
saved_states = stated(
    'a dict with "masters" and "optimizer"',
    lambda given: isinstance(given, dict) and given.keys() >= {"masters", "optimizer"},
)


@validate(params=several, optimizer_class=type[torch.optim.Optimizer])
class FP32Optimizer(torch.optim.Optimizer):
    """An optimizer for 16-bit parameters that steps in fp32 and rounds to nearest: the rounding error is lost.

        optimizer = FP32Optimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)

    ``params`` are parameters or groups of them, ``options`` those of ``optimizer_class``. It is used like any
    optimizer: by schedules of the learning rate, ``zero_grad``, and ``LossScaler``. Parameters that are fp32 are
    stepped on directly. Moments are fp32; the fp32 weight exists for the step of its parameter only.

    ``gradient_factor`` is what gradients are multiplied by once they are fp32: the scaler's and the clipping's doing.
    """

    def __init__(self, params, optimizer_class=torch.optim.AdamW, **options):
        params = must(type(self).__name__, "params", each_of(torch.Tensor | dict), list(params))
        groups = params if params and isinstance(params[0], dict) else [{"params": params}]
        groups = [{**group, "params": list(group["params"])} for group in groups]
        self.masters = {p: self._master_of(p) for group in groups for p in group["params"]}
        self.optimizer = optimizer_class([self._on_masters(group) for group in groups], **options)
        self.gradient_factor = 1.0
        super().__init__(groups, self.optimizer.defaults)

    # What subclasses override, for 16-bit parameters.

    def _begin(self, p):
        """The tensor that stands for it in the optimizer: between steps it is empty."""
        return p.new_empty(0, dtype=torch.float32)

    def _upcast(self, p):
        """The fp32 weight before a step."""
        return p.detach().float()

    def _round(self, p, master):
        """``master`` becomes the weight."""
        p.copy_(master)

    def _end(self, master):
        """After a step."""
        master.data = master.new_empty(0)

    # The same for all.

    def _master_of(self, p):
        """Of an fp32 parameter: a view of it."""
        must(type(self).__name__, "a parameter", floats, p)
        return p.detach() if p.dtype == torch.float32 else self._begin(p)

    @validate(param_group=groups_of_parameters)
    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if not self.masters.keys() >= set(group["params"]):  # not one of the constructor's
            self.masters |= {p: self._master_of(p) for p in group["params"]}
            self.optimizer.add_param_group(self._on_masters(group))

    @validate(closure=function)
    @torch.no_grad()
    def step(self, closure=None):
        """The closure's loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        groups = self.optimizer.param_groups
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.optimizer.param_groups = [self._on_masters({**group, "params": [p]})]
                    self._step_one(p, self.masters[p])
        self.optimizer.param_groups = groups
        self.gradient_factor = 1.0
        return loss

    def _on_masters(self, group):
        return {**group, "params": [self.masters[p] for p in group["params"]]}

    def _step_one(self, p, master):
        rounds = p.dtype != torch.float32
        if rounds:
            master.data = self._upcast(p)
        master.grad = p.grad.float() * self.gradient_factor  # the only one in fp32
        self.optimizer.step()
        master.grad = None
        if rounds:
            self._round(p, master)
            self._end(master)

    @validate(max_norm=rate)
    @torch.no_grad()
    def clip_grad_norm_(self, max_norm):
        """Clip the norm of all gradients to ``max_norm``. Returns the norm before, in fp32.

        Call it after the scaler's ``unscale_``. Gradients are not modified: the factor is applied in ``step``.
        """
        gradients = [p.grad for p in self.masters if p.grad is not None]
        norms = [torch.linalg.vector_norm(gradient, dtype=torch.float32) for gradient in gradients]
        norm = torch.linalg.vector_norm(torch.stack(norms)) * self.gradient_factor
        self.gradient_factor = self.gradient_factor * (float(max_norm) / (norm + 1e-6)).clamp(max=1.0)  # as torch
        return norm

    @torch.no_grad()
    def upcast(self, p):
        """The weight in fp32, with what is kept beside it."""
        return p.detach() if p.dtype == torch.float32 else self._upcast(p)

    def state_dict(self):
        """Weights in fp32, and the state of the optimizer that steps on them."""
        masters = [self.upcast(p) for p in self.masters]
        return {"masters": masters, "optimizer": self._with_our_options().state_dict()}

    @validate(state_dict=saved_states)
    @torch.no_grad()
    def load_state_dict(self, state_dict):
        """The parameters become the saved master weights, rounded."""
        saved, ours = ([tuple(each.shape) for each in tensors] for tensors in (state_dict["masters"], self.masters))
        if saved != ours:
            raise ValueError(f"load_state_dict: the parameters have shapes {ours}, but {saved} were saved")
        self.optimizer.load_state_dict(state_dict["optimizer"])
        for group, saved in zip(self.param_groups, self.optimizer.param_groups):
            group.update({name: value for name, value in saved.items() if name != "params"})
        for p, saved in zip(self.masters, state_dict["masters"]):
            if p.dtype == torch.float32:
                p.copy_(saved)
            else:
                self._round(p, saved)

    def _with_our_options(self):
        for group, ours in zip(self.optimizer.param_groups, self.param_groups):
            group.update({name: value for name, value in ours.items() if name != "params"})
        return self.optimizer
