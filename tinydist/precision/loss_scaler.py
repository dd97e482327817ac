"""Loss scaling: multiply the loss so that small gradients do not underflow in fp16, and unscale the gradients.

    scale(loss).backward()     gradients are s times too large, in range of fp16 (2^-24 to 65504)
    unscale_(optimizer)        divides them by s, in fp32; is any of them inf or NaN, on any rank?
    step(optimizer)            if none is: the step.   if one is: no step at all, on no rank
    update()                   overflow: s shrinks;    long without one: s grows

             |     ____|          ____|
    s        | ___|    |_________|    |____            as large as goes without overflow: ``scale`` of a rule, after
             +------------------------------ steps     its ``update(overflow)``

With gradient accumulation, ``scale`` each microbatch's share of the loss, and do the other three once, after the last:
what is added up must have one scale. Clip after ``unscale_``, before ``step``. bf16 has the range of fp32, and needs
none of this.

Costs a pass over the gradients, a kernel or two for all of them, which divides and looks at once; on several ranks an
all_reduce of one number, since a rank that steps while another does not has other weights from then on. (Where DDP has
averaged the gradients, one rank's inf is in those of all, and torch's GradScaler sends nothing. Where each rank has a
shard of them, only its rank sees it.)

Sources: Micikevicius et al. 2017, Mixed Precision Training, section 3.2; torch.amp.GradScaler; DeepSpeed,
runtime/fp16/loss_scaler.py.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from ctypes import c_float
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist

from ..rules import count, finite, flag, positive, stated, validate, whole
from ..torch_internals import multiply_and_check

SMALLEST = 2.0**-126  # scale, whose inverse is an fp32 number
LARGEST = torch.finfo(torch.float32).max
fp32_scale = stated(
    f"a number > 0 and at most {LARGEST:.3g}, the largest of fp32", lambda s: positive(s) and s <= LARGEST
)
scale_rule = stated("a rule, with scale and update", lambda rule: hasattr(rule, "scale") and hasattr(rule, "update"))
optimizers = stated("an optimizer", lambda given: hasattr(given, "step"))


@validate(rule=scale_rule, group=dist.ProcessGroup)
class LossScaler:
    """Scales the loss by ``rule.scale``; skips the steps that overflow, on all ranks of ``group``.

    ``rule`` is ``DynamicLossScale()`` by default. ``group``: the ranks that step together, by default all: those that
    share the loss or hold a part of the model.
    """

    def __init__(self, rule=None, group=None):
        self.rule = rule or DynamicLossScale()
        self.group = group
        self._scaled = False  # since the last update
        self._overflow = {}  # optimizer -> whether its gradients have an inf or NaN on any rank
        self._stepped = set()

    @validate(loss=torch.Tensor)
    def scale(self, loss):
        """The loss times the scale; in fp32 if the loss is a single number, as fp16 ends at 65504."""
        self._scaled = True
        return loss * torch.full((), self.rule.scale, dtype=torch.float32, device=loss.device)  # a copy would wait

    @validate(optimizer=optimizers)
    @torch.no_grad()
    def unscale_(self, optimizer):
        """Divide the optimizer's gradients by the scale, to inspect or clip them; otherwise ``step`` does it.

        Every rank of the group must call it. Raises ``RuntimeError`` out of order, ``ValueError`` for fp16 gradients:
        divided in fp16, they would vanish after all.
        """
        self._must_be_in_order("unscale_", optimizer)
        if optimizer in self._overflow:
            raise RuntimeError(
                f"unscale_: already called for this optimizer; called again, gradients would be {self.rule.scale} "
                "times too small. Call it once before each step, then update()"
            )
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        divide_later = hasattr(optimizer, "gradient_factor")  # master weights: when they are fp32
        if divide_later:
            optimizer.gradient_factor = 1 / self.rule.scale
        else:
            _check_none_is_fp16(parameters)
        self._overflow[optimizer] = self._multiply(parameters, 1.0 if divide_later else 1 / self.rule.scale)

    @validate(optimizer=optimizers)
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

    @validate(state=Mapping)
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
        """Multiply the gradients, all of a kind at once. Whether one of them has an inf or NaN, on any rank."""
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
            "tiny ones underflow. Keep the parameters float32 and compute under autocast, or give them to MasterWeights"
        )


@validate(scale=fp32_scale)
@dataclass
class StaticLossScale:
    """The scale stays. Steps that overflow are skipped nevertheless."""

    scale: float = 2.0**16

    def update(self, overflow):
        pass


@validate(scale=fp32_scale, growth_factor=finite, backoff_factor=finite, growth_interval=count, good_steps=whole)
@dataclass
class DynamicLossScale:
    """torch's rule: an overflow shrinks the scale; ``growth_interval`` consecutive steps without one grow it.

    Source: torch.amp.GradScaler.
    """

    scale: float = 2.0**16
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000  # steps
    good_steps: int = 0  # since the last change

    def __post_init__(self):
        if not (self.growth_factor > 1 > self.backoff_factor > 0):
            raise ValueError(
                "DynamicLossScale: growth_factor must be above 1 and backoff_factor between 0 and 1, "
                f"got {self.growth_factor} and {self.backoff_factor}"
            )
        self.scale = as_fp32(self.scale)

    def update(self, overflow):
        self.good_steps = 0 if overflow else self.good_steps + 1
        if overflow:
            self._shrink()
        elif self.good_steps == self.growth_interval:
            grown = as_fp32(self.scale * self.growth_factor)
            self.scale, self.good_steps = grown if math.isfinite(grown) else self.scale, 0

    def _shrink(self):
        shrunk = as_fp32(self.scale * self.backoff_factor)
        if shrunk < SMALLEST:
            raise OverflowError(f"update: overflow even at a scale of {self.scale}: the loss is inf or NaN")
        self.scale = shrunk


@validate(scale=fp32_scale, window=count, hysteresis=count, min_scale=positive, consecutive=flag, patience=whole)
@validate(steps=whole, last_overflow=whole)
@dataclass
class HysteresisLossScale:
    """DeepSpeed's rule with hysteresis: overflows first use up the hysteresis count, then each halves the scale.

    The step after ``window`` good ones in a row doubles it and gives all patience back, and so after each further
    window; with ``consecutive``, every good step gives it back. ``min_scale`` is the least: to overflow there is an
    error. (In its configuration: loss_scale_window, hysteresis, consecutive_hysteresis, min_loss_scale.)

    Source: DynamicLossScaler of DeepSpeed, runtime/fp16/loss_scaler.py.
    """

    scale: float = 2.0**16
    window: int = 1000  # steps
    hysteresis: int = 2  # overflows that it takes to halve the scale
    min_scale: float = 1.0
    consecutive: bool = False
    patience: int | None = None  # overflows left; None: all
    steps: int = 0
    last_overflow: int = -1  # the step that had it

    def __post_init__(self):
        self.patience = self.hysteresis if self.patience is None else self.patience

    def update(self, overflow):
        if overflow:
            self._shrink()
            self.last_overflow = self.steps
        else:
            good_steps = self.steps - self.last_overflow - 1  # before this one
            grows = good_steps > 0 and good_steps % self.window == 0
            if grows or self.consecutive:
                self.patience = self.hysteresis
            self.scale *= 2 if grows else 1
        self.steps += 1

    def _shrink(self):
        if self.patience > 1:
            self.patience -= 1
            return
        if self.scale <= self.min_scale:
            raise OverflowError(
                f"update: the gradients overflow at the smallest scale, {self.min_scale}, in step {self.steps}: "
                "the loss itself is inf or NaN, or too large for fp16"
            )
        self.scale = max(self.scale / 2, self.min_scale)


def as_fp32(number):
    """The nearest fp32 number, in which torch keeps the scale."""
    return c_float(number).value
