"""Executes the end of a training step (the actions of steps.py) on one rank, with real tensors.

    reduce, wait    the gradients of a stage, in one flat tensor: an all-reduce over replicas, while the rank goes on
    add_norm        the squares of this rank's gradients, on top of those of the ranks before
    step            the optimizer step, with the global norm, or speculatively with a partial one
    check           compares with the global norm; a wrong speculative step is rolled back and done again

The right step: none if the norm is not finite, else with gradients clipped to ``max_norm``, as torch clips them. To
undo it a copy of weights, buffers, optimizer states and the random state is kept from step to check. (Qi et al., Zero
Bubble Pipeline Parallelism, 2024, appendix C, compute backwards instead: without a copy, but not to the same bit.)
"""

from copy import deepcopy
from math import inf

import torch
import torch.distributed as dist

from ..annotate import purpose
from .backward import random_state, set_random_state
from .schedule import REDUCE, STEP, WAIT_REDUCE, Action, needs


class OptimizerPhase:
    """``p2p`` brings the norm of other ranks; the other arguments are those of a Worker."""

    def __init__(self, schedule, stages, p2p, replicas, optimizer, max_norm):
        self.schedule, self.stages, self.p2p = schedule, stages, p2p
        self.replicas, self.optimizer = replicas, optimizer
        self.max_norm = inf if max_norm is None else max_norm
        self.reducing = {}  # stage -> its gradients, the same in one tensor, work
        self.squares = None  # of the norm, as far as it is known
        self.certain = True  # is it that of all ranks?
        self.undo = None  # what undoes the step, until it is checked

        there = {part.kind for _, _, part in schedule.all_parts()}
        if STEP in there and optimizer is None:
            raise ValueError(f"Worker: {schedule.name} has STEP, and needs an optimizer (rank {p2p.rank})")
        if replicas and REDUCE not in there:
            text = "has no REDUCE_GRAD for the gradients of replicas: with_steps adds it"
            raise ValueError(f"Worker: {schedule.name} {text} (rank {p2p.rank})")

    # Reduction.

    def reduce(self, action):
        if self.replicas:
            gradients = [p.grad for p in self.stages[action.stage].parameters() if p.grad is not None]
            with purpose("communication"):
                flat = torch.cat([gradient.flatten() for gradient in gradients])
            self.reducing[action.stage] = gradients, flat, dist.all_reduce(flat, group=self.replicas, async_op=True)

    def wait_reduce(self, action):
        if self.replicas:
            gradients, flat, work = self.reducing.pop(action.stage)
            work.wait()
            flat /= dist.get_world_size(self.replicas)
            for gradient, mean in zip(gradients, flat.split([gradient.numel() for gradient in gradients])):
                gradient.copy_(mean.view_as(gradient))

    def wait_for_all(self):
        """For reductions without a WAIT_REDUCE_GRAD in the schedule."""
        for stage in list(self.reducing):
            self.wait_reduce(Action(stage, WAIT_REDUCE, 0))

    # The norm, and the step.

    def add_norm(self, action):
        """On top of that of the rank before."""
        before = self._of_other_rank(action)
        before = torch.zeros((), device=self.p2p.device) if before is None else before
        self.squares = before + sum(gradient.float().square().sum() for gradient in self._gradients())
        self.certain = False
        if action.stage < self.schedule.ranks - 1:
            self.p2p.results[action] = self.squares

    def step(self, action):
        if self.certain:
            self._step_right()
            return
        self.undo = self._undoing()
        if self._good():
            self.optimizer.step()

    def check(self, action):
        """Whether the step was wrong; then it is rolled back, to be redone."""
        if action.stage < self.schedule.ranks - 1:
            self.squares = self._of_other_rank(action)
        self.p2p.results[action], self.certain = self.squares, True
        undo, self.undo = self.undo, None
        wrong = undo is not None and not self._good()
        if wrong:
            undo()
        elif undo:
            self.optimizer.zero_grad()
        return wrong

    def _of_other_rank(self, action):
        result = needs(action, self.schedule.stages, self.schedule.ranks)
        return result and self.p2p.take(result)

    def _step_right(self):
        if self.squares is None or self._good():
            self.optimizer.step()
        elif self.squares.isfinite():
            parameters = [p for stage in self.stages.values() for p in stage.parameters()]
            torch.nn.utils.clip_grads_with_norm_(parameters, self.max_norm, self.squares.sqrt())
            self.optimizer.step()
        self.optimizer.zero_grad()

    def _gradients(self):
        return [p.grad for stage in self.stages.values() for p in stage.parameters() if p.grad is not None]

    def _good(self):
        """Is there nothing to clip? Then a step that did not know the norm is right."""
        return bool(self.squares.isfinite()) and bool(self.squares.sqrt() + 1e-6 <= self.max_norm)

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
