"""Loss scaling: multiply the loss, so that small gradients do not vanish in fp16, and divide the gradients again.

    scale(loss).backward()     gradients are s times too large, in range of fp16 (2^-24 to 65504)
    unscale_(optimizer)        divides them by s, in fp32; is any of them inf or NaN, on any rank?
    step(optimizer)            if none is: the step.   if one is: no step at all, on no rank
    update()                   overflow: s shrinks;    long without one: s grows (scale_rules.py)

With gradient accumulation, ``scale`` each microbatch's share of the loss, and do the other three once, after the last:
what is added up must have one scale. Clip after ``unscale_``, before ``step``. bf16 has the range of fp32, and needs
none of this.

Costs a pass over the gradients, a kernel or two for all of them, which divides and looks at once; on several ranks an
all_reduce of one number, since a rank that steps while another does not has other weights from then on. (Where DDP has
averaged the gradients, one rank's inf is in those of all, and they agree anyway: torch's GradScaler asks nobody. Where
each rank has a shard of them, only its rank sees it.)

Sources: Micikevicius et al. 2017, Mixed Precision Training, section 3.2; torch.amp.GradScaler; DeepSpeed,
runtime/fp16/loss_scaler.py.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict

import torch
import torch.distributed as dist

from ..rules import stated, takes
from ..torch_internals import multiply_and_check
from .scale_rules import Dynamic

scale_rule = stated("a rule, with scale and update", lambda rule: hasattr(rule, "scale") and hasattr(rule, "update"))
optimizers = stated("an optimizer", lambda given: hasattr(given, "step"))


@takes(rule=scale_rule, group=dist.ProcessGroup)
class LossScaler:
    """Scales the loss by ``rule.scale``; skips the steps that overflow, on all ranks of ``group``.

    ``rule`` is ``Dynamic()`` by default. ``group`` are the ranks that step together, by default all: whoever shares the
    loss, or has a part of the model.
    """

    def __init__(self, rule=None, group=None):
        self.rule = rule or Dynamic()
        self.group = group
        self._scaled = False  # since the last update
        self._overflow = {}  # optimizer -> whether its gradients have an inf or NaN on any rank
        self._stepped = set()

    @takes(loss=torch.Tensor)
    def scale(self, loss):
        """The loss times the scale; in fp32 if the loss is a single number, as fp16 ends at 65504."""
        self._scaled = True
        return loss * torch.full((), self.rule.scale, dtype=torch.float32, device=loss.device)  # a copy would wait

    @takes(optimizer=optimizers)
    @torch.no_grad()
    def unscale_(self, optimizer):
        """Divide the optimizer's gradients by the scale, to look at or clip them; ``step`` does it otherwise.

        Every rank of the group must call it. Raises ``RuntimeError`` out of order, ``ValueError`` for fp16 gradients:
        divided in fp16, they would vanish after all.
        """
        self._must_be_in_order("unscale_", optimizer)
        if optimizer in self._overflow:
            raise RuntimeError(
                f"unscale_: this optimizer's gradients are unscaled already; again, they would be {self.rule.scale} "
                "times too small. Call it once before each step, then update()"
            )
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        divide_later = hasattr(optimizer, "gradient_factor")  # master weights: when they are fp32
        if divide_later:
            optimizer.gradient_factor = 1 / self.rule.scale
        else:
            _check_none_is_fp16(parameters)
        self._overflow[optimizer] = self._multiply(parameters, 1.0 if divide_later else 1 / self.rule.scale)

    @takes(optimizer=optimizers)
    def step(self, optimizer):
        """``optimizer.step()``, unless a gradient is inf or NaN on any rank. Whether the step was taken."""
        self._must_be_in_order("step", optimizer)
        if optimizer not in self._overflow:
            self.unscale_(optimizer)
        self._stepped.add(optimizer)
        if self._overflow[optimizer]:
            return False
        optimizer.step()
        return True

    def update(self):
        """Let the rule choose the scale for the next step. An overflow of one optimizer is one of all."""
        if not self._overflow:
            raise RuntimeError("update() called without a preceding step(optimizer)")
        self._scaled, overflow = False, any(self._overflow.values())
        self._overflow, self._stepped = {}, set()
        self.rule.update(overflow)

    def state_dict(self):
        return {"rule": type(self.rule).__name__, **asdict(self.rule)}

    @takes(state=Mapping)
    def load_state_dict(self, state):
        state = dict(state)
        saved, ours = state.pop("rule", None), type(self.rule).__name__
        if saved != ours:
            raise ValueError(f"load_state_dict: this scaler's rule is {ours}, but {saved} was saved")
        self.rule = type(self.rule)(**state)

    def _must_be_in_order(self, operation, optimizer):
        if not self._scaled:
            raise RuntimeError(
                f"{operation}: no loss was scaled since the last update(); call scaler.scale(loss).backward() first"
            )
        if optimizer in self._stepped:
            raise RuntimeError(f"{operation}: this optimizer has stepped already; call update() first")

    def _multiply(self, parameters, factor):
        """The gradients by ``factor``, all of a kind at once. Whether one of them has an inf or NaN, on any rank."""
        kinds = defaultdict(list)
        for gradient in (parameter.grad for parameter in parameters if parameter.grad is not None):
            kinds[gradient.device, gradient.dtype].append(gradient)
        overflow = torch.zeros((), device=parameters[0].device)
        for (device, _), gradients in kinds.items():
            found = torch.zeros((), device=device)
            multiply_and_check(gradients, found, torch.full((), factor, device=device))
            overflow += found.to(overflow.device)
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(overflow, dist.ReduceOp.MAX, group=self.group)
        return bool(overflow)


def _check_none_is_fp16(parameters):
    half = [p for p in parameters if p.grad is not None and p.grad.dtype == torch.float16]
    if half:
        raise ValueError(
            f"unscale_: the gradients are float16 ({len(half)} of {len(parameters)}, the first of shape "
            f"{tuple(half[0].shape)}), because the parameters are: model.half()? Divided by the scale in float16, "
            "small ones vanish. Keep the parameters float32 and compute under autocast, or give them to MasterWeights"
        )
