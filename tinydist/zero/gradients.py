"""Stage 2: every rank keeps the gradients of its own shard alone, too.

    stage 1     backward ends; reduce-scatter all gradients                        4 + 12/p bytes a parameter
    stage 2     as soon as a row is full: reduce-scatter it, keep the own part     2 + 14/p

    backward    layer 3     layer 2     layer 1          a row in flight and one that fills: at most two are whole
                [row 0 fills][row 1 fills ][row 2 ..
                             reduce-scatter 0 ][ 1 ..

Bytes sent: the same, 2 (p-1)/p of the parameters, if a step has one backward; each microbatch more reduces once more,
(p-1)/p, unless it runs in ``no_sync``, which keeps whole gradients.
Source: Rajbhandari et al., ZeRO, 2019, sections 5.2 and 7.2.1.
"""

import torch.distributed as dist

from ..simulator.torch_internals import before_backward_ends
from .optimizer_states import OptimizerStates


class Gradients(OptimizerStates):
    """Stage 1, but

    backward    gradients move to rows as they come; a full row is reduced at once, and freed
    step        as in stage 1; the gradients are there
    """

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.flat_of = {parameter: flat for flat in self.flats for parameter in flat.parameters}
        self._reset()
        for parameter in self.flat_of:
            parameter.register_post_accumulate_grad_hook(self._gradient_is_ready)

    # Backward.

    def _reset(self):
        self.started, self.in_backward, self.finish = 0, False, None
        for flat in self.flats:
            flat.missing = set(flat.parameters)

    def _backward_goes_on(self):
        if not self.in_backward:
            self.in_backward = True
            before_backward_ends(self._backward_ends)

    def _gradient_is_ready(self, parameter):
        self._backward_goes_on()
        flat = self.flat_of[parameter]
        flat.take(parameter)
        if not flat.missing:
            self._is_full(flat)

    def _is_full(self, flat):
        """In their order, which is the same on all ranks."""
        while self.synchronize and self.started < len(self.flats) and not self.flats[self.started].missing:
            self._reduce_next()

    def _reduce_next(self):
        self._finish()  # the one before: two rows are enough
        self.finish = self.flats[self.started].reduce()
        self.started += 1

    def _finish(self):
        if self.finish:
            self.finish()
            self.finish = None

    def _backward_ends(self):
        """Rows that are not full have parameters that took no part: on this rank, but who knows of others."""
        try:
            while self.synchronize and self.started < len(self.flats):
                self._reduce_next()
            self._finish()
        finally:
            self._reset()

    # A step.

    def _collect(self):
        """They are there already, unless no backward has brought any."""
        if any(flat.grad is None or flat.row is not None for flat in self.flats):
            raise RuntimeError(
                f"{self.name}: gradients to step on are missing. Call backward first, and the last one before a step "
                f"outside of no_sync (rank {dist.get_rank()})"
            )

    def zero_grad(self):
        super().zero_grad()
        self._reset()
