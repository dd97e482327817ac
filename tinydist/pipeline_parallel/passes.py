"""The passes of a rank's stages over microbatches: forward; backward, whole or in halves; forward once more.

Every microbatch's loss is a mean over its rows, and counts 1/M, so a step equals one on the whole batch. Held of a
microbatch is its input, and the graph between F and B; where forward is run once more, in R, or with ``recompute`` in B
or I, only the input (recompute.py).
"""

from contextlib import nullcontext
from functools import partial

import torch

from .actions import BACKWARD, FORWARD, RECOMPUTE, Action, result_of
from .backward import SplitBackward, edge_of
from .recompute import Again


class Passes:
    """Of a Worker, whose arguments these are. ``neighbors`` has what they need of other stages, and make for them."""

    def __init__(self, schedule, stages, loss, neighbors, recompute, no_sync):
        self.schedule, self.stages, self.loss, self.neighbors = schedule, stages, loss, neighbors
        self.recompute, self.no_sync, self.rank = recompute, no_sync or {}, neighbors.rank

    @property
    def last(self):
        return self.schedule.stages - 1

    def begin(self, program, inputs, targets):
        self.inputs = self._microbatches("inputs", inputs, 0)
        self.targets = self._microbatches("targets", targets, self.last)
        self.held = {}  # (stage, microbatch) -> the input, and what says where backward begins; then a SplitBackward
        self.losses = {}  # by microbatch
        self.again = {part for each in program for part in each.parts if part.kind == RECOMPUTE}

    def _microbatches(self, what, rows, stage):
        if stage not in self.stages:
            return None
        count = self.schedule.microbatches
        if rows is None or len(rows) % count:
            got = "None" if rows is None else f"{len(rows)} rows"
            raise ValueError(
                f"Worker: rank {self.rank} has stage {stage} and needs {what} with a number of rows divisible by "
                f"microbatches ({count}), got {got}"
            )
        return rows.chunk(count)

    def mean_loss(self):
        """Of each training step; None without the last stage."""
        if not self.losses:
            return None
        losses = torch.stack([self.losses[microbatch] for microbatch in range(self.schedule.microbatches)])
        return losses.sum() if self.schedule.steps == 1 else losses.view(self.schedule.steps, -1).sum(1)

    def forward(self, action):
        stage, _, microbatch = action
        input, run = self._input(action), partial(self._run, action)
        again = Again(run, input) if self.recompute or action._replace(kind=RECOMPUTE) in self.again else None
        output = again.output if again else run(input)
        if stage == self.last:
            self.losses[microbatch] = output.detach()
        else:
            self.neighbors.results[action] = output.detach()
        edge = None if again else edge_of(output)
        self.held[stage, microbatch] = input, again.edge if again else lambda: edge

    def _input(self, action):
        stage, _, microbatch = action
        if stage == 0:
            return self.inputs[microbatch]
        return self.neighbors.take(Action(stage - 1, FORWARD, microbatch)).requires_grad_()

    def _run(self, action, input):
        output = self.stages[action.stage](input)
        if action.stage != self.last:
            return output
        return self.loss(output, self.targets[action.microbatch]) * self.schedule.steps / self.schedule.microbatches

    def recompute_forward(self, action):
        input, run = self.held[action.stage, action.microbatch]
        edge = run()
        self.held[action.stage, action.microbatch] = input, lambda: edge

    def _arrived(self, action):
        """The input, where backward begins, and the gradient that it begins with; the loss needs none."""
        last = action.stage == self.last
        gradient = None if last else self.neighbors.take(Action(action.stage + 1, BACKWARD, action.microbatch))
        input, edge = self.held.pop((action.stage, action.microbatch))
        return input, edge(), gradient

    def backward(self, action):
        input, edge, gradient = self._arrived(action)
        if edge:
            with self._quiet(action):
                torch.autograd.backward(edge, gradient)
        self._pass_back(action, input.grad)
        input.grad = None

    def backward_input(self, action):
        input, edge, gradient = self._arrived(action)
        split = self.held[action.stage, action.microbatch] = SplitBackward(edge, gradient, input)
        self._pass_back(action, split.input_gradient())

    def backward_weight(self, action):
        with self._quiet(action):
            self.held.pop((action.stage, action.microbatch)).accumulate_weights()

    def _quiet(self, backward):
        """In which all but the last of a stage and a step run. They take the microbatches in turn."""
        last = (backward.microbatch + 1) % (self.schedule.microbatches // self.schedule.steps) == 0
        return nullcontext() if last or backward.stage not in self.no_sync else self.no_sync[backward.stage]()

    def _pass_back(self, action, gradient):
        if action.stage > 0:
            if gradient is None:
                what = f"the output of stage {action.stage} does not depend on its input"
                raise ValueError(
                    f"Worker: {what}, so it has no gradient for stage {action.stage - 1} (rank {self.rank})"
                )
            self.neighbors.results[result_of(action)] = gradient
