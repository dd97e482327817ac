"""What passes, messages, and what ends a training step take; and what is held between them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..rules import amount, each_of, one_of, part, takes
from .actions import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, RECOMPUTE, STEP
from .replay import INSIDE, RECOMPUTED, REDUCED, WAYS

Seconds = float | Sequence[float]  # of all stages, or one for each


@takes(message=amount, overlap=amount, kept_for_weights=part, recompute=one_of(RECOMPUTED), kept_inputs=part)
@dataclass(frozen=True)
class Costs:
    """Seconds of the passes of a stage over one microbatch, of a message, and of what ends a training step: the mean of
    a stage's gradients over its replicas, the optimizer's step of a stage."""

    forward: Seconds = 1.0
    backward_input: Seconds = 1.0
    backward_weight: Seconds = 1.0
    message: float = 0.0
    overlap: float | None = None  # of a forward and a backward at once; None: as long as one after the other
    kept_for_weights: float = 1.0
    reduce: Seconds = 0.0
    step: Seconds = 0.0
    recompute: str | None = None  # recompute.py
    kept_inputs: float = 0.0  # of a stage's activations, those which recomputation begins with

    def by_stage(self, stages):
        """Seconds, [kind][stage]."""
        names = ("forward", "backward_input", "backward_weight", "reduce", "step")
        F, I, W, reduce, step = (self._each(name, stages) for name in names)  # noqa: E741
        inside = F * (self.recompute == INSIDE)
        seconds = {FORWARD: F, BACKWARD: inside + I + W, BACKWARD_INPUT: inside + I, BACKWARD_WEIGHT: W}
        seconds |= {RECOMPUTE: F, REDUCED: reduce, STEP: step}
        return np.stack([seconds.get(kind, np.zeros(stages)) for kind in WAYS])

    def _each(self, name, stages):
        seconds = getattr(self, name)
        if not (amount(seconds) or (each_of(amount)(seconds) and len(seconds) == stages)):
            rule = f"0 or more seconds, of all stages or of each of {stages}"
            raise ValueError(f"Costs: {name} must be {rule}, got {seconds}")
        return np.broadcast_to(np.asarray(seconds, dtype=float), stages)

    def held(self, recompute):
        """By kind, what is taken when a pass begins and given back when it ends, in microbatches of one stage."""
        again = 1.0 - self.kept_inputs if recompute else 0.0
        inside = again * (recompute == INSIDE)
        taken = {FORWARD: 1.0 - again, RECOMPUTE: again, BACKWARD: inside, BACKWARD_INPUT: inside}
        given = {BACKWARD: 1.0, BACKWARD_INPUT: 1.0 - self.kept_for_weights, BACKWARD_WEIGHT: self.kept_for_weights}
        return [np.array([change.get(kind, 0.0) for kind in WAYS]) for change in (taken, given)]
