"""Master weights: the model computes with 16 bits, the optimizer adds up in 32.

    bytes a parameter, with Adam:        2 weight | 2 gradient | 4 master weight + 4 + 4 moments = 16

    weight (fp16)  ->  forward, backward  ->  gradient (fp16)
       ^                                            |  to fp32, one parameter at a time
       '---- rounded ----  master weight (fp32)  <--'  m, v, update

An update is lost when it is below half the distance to the next number: for weights near 1, 2^-11 in fp16 and 2^-8
in bf16. In fp32 it is 2^-24, so small updates add up until the 16 bits see them.

7.5 billion parameters: 15 GB of weights, 120 GB in training, three quarters of it the optimizer's.

Sources: Micikevicius et al. 2017, Mixed Precision Training, section 3.1; Rajbhandari et al. 2019, ZeRO, section 3.1.
"""

import torch

from ..rules import each_of, floats, function, must, rate, several, stated, takes
from ..simulator.memory import purpose

groups_of_parameters = stated('a dict with "params"', lambda given: isinstance(given, dict) and "params" in given)
saved_states = stated(
    'a dict with "masters" and "optimizer"',
    lambda given: isinstance(given, dict) and given.keys() >= {"masters", "optimizer"},
)


@takes(params=several, optimizer_class=type[torch.optim.Optimizer])
class MasterWeights(torch.optim.Optimizer):
    """An optimizer for 16-bit parameters that keeps fp32 copies of them, and steps on those.

        optimizer = MasterWeights(model.parameters(), torch.optim.AdamW, lr=1e-3)

    ``params`` are parameters or groups of them, ``options`` those of ``optimizer_class``. It is used like any
    optimizer: by schedules of the learning rate, ``zero_grad``, and ``LossScaler``. Parameters that are fp32 are
    stepped on directly. A parameter that was written to, by ``load_state_dict`` say, is the new master weight.

    ``gradient_factor`` is what gradients are multiplied by once they are fp32: the scaler's and the clipping's doing.
    """

    def __init__(self, params, optimizer_class=torch.optim.AdamW, **options):
        params = must("MasterWeights", "params", each_of(torch.Tensor | dict), list(params))
        groups = params if params and isinstance(params[0], dict) else [{"params": params}]
        groups = [{**group, "params": list(group["params"])} for group in groups]
        self.masters = {p: _fp32_copy(p) for group in groups for p in group["params"]}
        self.optimizer = optimizer_class([self._on_masters(group) for group in groups], **options)
        self.versions = {}  # parameter -> how often it was written to
        self.gradient_factor = 1.0
        super().__init__(groups, self.optimizer.defaults)

    @takes(param_group=groups_of_parameters)
    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if not self.masters.keys() >= set(group["params"]):  # it is none of the constructor's
            self.masters |= {p: _fp32_copy(p) for p in group["params"]}
            self.optimizer.add_param_group(self._on_masters(group))
        for p in group["params"]:
            self.versions[p] = p._version
            if p.dtype != torch.float32:
                self.state[p]["master"] = self.masters[p]

    @takes(closure=function)
    @torch.no_grad()
    def step(self, closure=None):
        """Gradient to fp32, step, weight to 16 bits: for one parameter after the other. The closure's loss."""
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
        if p._version != self.versions[p]:
            master.copy_(p)
        master.grad = p.grad.float() * self.gradient_factor  # the only one in fp32
        self.optimizer.step()
        master.grad = None
        self._round(p, master)

    def _round(self, p, master):
        p.copy_(master)
        self.versions[p] = p._version

    @takes(max_norm=rate)
    @torch.no_grad()
    def clip_grad_norm_(self, max_norm):
        """Let the gradients have a norm of ``max_norm`` at most, all together. The norm before, in fp32.

        After the scaler's ``unscale_``. Nothing is written: it is a factor more.
        """
        gradients = [p.grad for p in self.masters if p.grad is not None]
        norms = [torch.linalg.vector_norm(gradient, dtype=torch.float32) for gradient in gradients]
        norm = torch.linalg.vector_norm(torch.stack(norms)) * self.gradient_factor
        self.gradient_factor = self.gradient_factor * (float(max_norm) / (norm + 1e-6)).clamp(max=1.0)  # as torch
        return norm

    def state_dict(self):
        """Master weights, and the state of the optimizer that steps on them."""
        return {"masters": list(self.masters.values()), "optimizer": self._with_our_options().state_dict()}

    @takes(state_dict=saved_states)
    @torch.no_grad()
    def load_state_dict(self, state_dict):
        """The parameters become those of the state, too: they are its master weights, rounded."""
        saved, ours = (
            [tuple(each.shape) for each in masters] for masters in (state_dict["masters"], self.masters.values())
        )
        if saved != ours:
            raise ValueError(f"load_state_dict: the parameters have shapes {ours}, but {saved} were saved")
        self.optimizer.load_state_dict(state_dict["optimizer"])
        for group, saved in zip(self.param_groups, self.optimizer.param_groups):
            group.update({name: value for name, value in saved.items() if name != "params"})
        for (p, master), saved in zip(self.masters.items(), state_dict["masters"]):
            master.copy_(saved)
            self._round(p, master)

    def _with_our_options(self):
        for group, ours in zip(self.optimizer.param_groups, self.param_groups):
            group.update({name: value for name, value in ours.items() if name != "params"})
        return self.optimizer


def _fp32_copy(p):
    """Of a parameter that is fp32 already, another name for it: the same memory."""
    with purpose("optimizer states"):
        return must("MasterWeights", "a parameter", floats, p).detach().float()
