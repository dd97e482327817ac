"""What becomes of the loss scale after each step: as large as goes without overflow.

             |     ____|          ____|
    scale    | ___|    |_________|    |____        grows after a while without overflow, shrinks at an overflow
             +------------------------------ steps

A rule has a ``scale`` and an ``update(overflow)``. Steps that overflow are skipped by LossScaler, whatever the rule.
"""

import math
from ctypes import c_float
from dataclasses import dataclass

from ..rules import count, finite, flag, positive, takes, whole

SMALLEST = 2.0**-126  # below, its inverse is no fp32 number


@takes(scale=positive)
@dataclass
class Static:
    """The scale stays. Steps that overflow are skipped all the same."""

    scale: float = 2.0**16

    def update(self, overflow):
        pass


@takes(scale=positive, growth_factor=finite, backoff_factor=finite, growth_interval=count, good_steps=whole)
@dataclass
class Dynamic:
    """torch's rule: each overflow shrinks the scale, ``growth_interval`` steps in a row without one let it grow.

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
                "Dynamic: growth_factor must be above 1 and backoff_factor between 0 and 1, "
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


@takes(scale=positive, window=count, hysteresis=count, min_scale=positive, consecutive=flag, patience=whole)
@takes(steps=whole, last_overflow=whole)
@dataclass
class Hysteresis:
    """DeepSpeed's rule: the scale halves only when patience is used up, at one overflow each; then at every overflow.

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
