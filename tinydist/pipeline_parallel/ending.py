"""The end of a training step with real tensors: the actions of steps.py, on one rank.

    reduce, wait    the gradients of a stage, in one flat tensor: an all-reduce over replicas, while the rank goes on
    add_norm        the squares of this rank's gradients, on top of those of the ranks before
    step            of what is known of the norm: of all ranks, or only of those before; then it may have to be undone
    check           the norm of all is known. Was the step right? If not it is undone, to be done again, as is right

The right step: none if the norm is not finite, else with gradients made shorter to ``max_norm``. To undo it a copy of
weights, buffers, optimizer states and the random state is kept from step to check. (Qi et al., Zero Bubble Pipeline
Parallelism, 2024, appendix C, compute backwards instead: without a copy, but not to the same bit.)
"""

from copy import deepcopy
from math import inf

import torch
import torch.distributed as dist

from ..annotate import purpose
from .recompute import random_state, set_random_state


class Ending:
    """``stages``: number -> module, of this rank. ``replicas``: the group of ranks that have the same ones, or None."""

    def __init__(self, stages, replicas, optimizer, max_norm):
        self.stages, self.replicas, self.optimizer = stages, replicas, optimizer
        self.max_norm = inf if max_norm is None else max_norm
        self.reducing = {}  # stage -> its gradients, the same in one tensor, work
        self.squares = None  # of the norm, as far as it is known
        self.certain = True  # is it that of all ranks?
        self.undo = None  # what undoes the step, until it is checked

    # Reduction.

    def reduce(self, stage):
        if self.replicas:
            gradients = [p.grad for p in self.stages[stage].parameters() if p.grad is not None]
            with purpose("communication"):
                flat = torch.cat([gradient.flatten() for gradient in gradients])
            self.reducing[stage] = gradients, flat, dist.all_reduce(flat, group=self.replicas, async_op=True)

    def wait(self, stage):
        if self.replicas:
            gradients, flat, work = self.reducing.pop(stage)
            work.wait()
            flat /= dist.get_world_size(self.replicas)
            for gradient, mean in zip(gradients, flat.split([gradient.numel() for gradient in gradients])):
                gradient.copy_(mean.view_as(gradient))

    # The norm, and the step.

    def add_norm(self, before):
        self.squares = before + sum(gradient.float().square().sum() for gradient in self._gradients())
        self.certain = False

    def step(self):
        if self.certain:
            self._step_right()
            return
        self.undo = self._undoing()
        if self._good():
            self.optimizer.step()

    def check(self, squares):
        """Was the step wrong? Then it is undone, and to be done again."""
        self.squares, self.certain = squares, True
        undo, self.undo = self.undo, None
        wrong = undo is not None and not self._good()
        if wrong:
            undo()
        elif undo:
            self.optimizer.zero_grad()
        return wrong

    def _step_right(self):
        if self.squares is None or self._good():
            self.optimizer.step()
        elif self.squares.isfinite():
            for gradient in self._gradients():
                gradient *= self.max_norm / self._norm()
            self.optimizer.step()
        self.optimizer.zero_grad()

    def _gradients(self):
        return [p.grad for stage in self.stages.values() for p in stage.parameters() if p.grad is not None]

    def _norm(self):
        return float(self.squares.sqrt())

    def _good(self):
        return bool(self.squares.isfinite()) and self._norm() <= self.max_norm

    @torch.no_grad()
    def _undoing(self):
        tensors = [each for stage in self.stages.values() for each in (*stage.parameters(), *stage.buffers())]
        copies = [each.clone() for each in tensors]
        states, random = deepcopy(self.optimizer.state_dict()), random_state(self.squares)

        @torch.no_grad()
        def undo():
            for tensor, copy in zip(tensors, copies):
                tensor.copy_(copy)
            self.optimizer.load_state_dict(states)
            set_random_state(random)

        return undo
