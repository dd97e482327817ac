"""A rank of a pipeline: does what its schedule says, with real tensors.

    RECV_F   post a receive for the output of the stage before
    F        wait for it; stage(input), and loss(output, target) / M on the last stage
    SEND_F   post a send of the output
    RECV_B   post a receive for the gradient of the output
    B        wait for it; the gradients of weights and input       or I: that of the input, and W: those of the weights
    SEND_B   post a send of the gradient of the input

and what ends a training step, ending.py. Every microbatch's loss is a mean over its rows, and counts 1/M, so a step
equals one on the whole batch. A rank holds the input and the graph of each microbatch that is between F and B; where
forward is run once more, in R, or with ``recompute`` in B or I, only the input (recompute.py).

Bytes a step: messages.py counts the messages, each of one microbatch of what passes between two stages.
"""

from collections import deque
from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist

from ..rules import function, named, rate, stated, takes
from ..simulator.memory import purpose
from ..simulator.modules import own_stages
from ..simulator.names import region
from .actions import (
    BACKWARD,
    CHECK,
    DOWN,
    ENDING,
    FORWARD,
    MESSAGES,
    RECOMPUTE,
    RECV_F,
    REDUCE,
    SEND_F,
    STEP,
    Action,
    needs,
    result_of,
)
from .backward import SplitBackward, edge_of
from .ending import Ending
from .messages import with_messages
from .neighbors import Neighbors
from .recompute import Again, with_recomputation
from .replay import BEFORE, RECOMPUTED
from .schedule import Schedule
from .steps import place_of_step, under_way
from .verifier import verify

FORWARDS = (FORWARD, RECV_F, SEND_F)

how = stated(f"{', '.join(RECOMPUTED)}, True (before) or False", lambda given: given in (*RECOMPUTED, True, False))


@takes(schedule=Schedule, stages=named(torch.nn.Module), between=torch.Tensor | dict, loss=function)
@takes(group=dist.ProcessGroup, upward_group=dist.ProcessGroup, recompute=how)
@takes(replicas=dist.ProcessGroup, optimizer=torch.optim.Optimizer, max_norm=rate, no_sync=named(function))
class Worker:
    """
    schedule:      a Schedule, of as many ranks as the group has. It is verified.
    stages:        stage -> module, of this rank's stages.
    between:       a tensor like what passes between stages for one microbatch; on ``meta``, it takes no memory. Or
                   stage -> what it receives, if they differ.
    loss:          ``loss(output, target)``, a mean over rows, for the last stage.
    group:         whose ranks are the schedule's. None: all.
    upward_group:  for messages to lower ranks, the same as ``group`` if None. NCCL runs the messages of two ranks in a
                   group one after another, and sends that cross can block there: give it a second group.
    recompute:     hold inputs only, and run forward again "before" backward (or True), or "inside" of it.
    replicas:      the ranks that have the same stages, in other pipelines. Their gradients become the mean of all in
                   REDUCE_GRAD.
    optimizer:     of the parameters of this rank's stages, for STEP, which sets gradients to zero once it is certain.
    max_norm:      of the gradients of all ranks, where the schedule checks it. A parameter of two stages counts twice.
    no_sync:       stage -> a context in which all its backwards run but the last of a step: that of who reduces
                   gradients in backward, so that it does it once.
    """

    def __init__(
        self,
        schedule,
        stages,
        between,
        loss=None,
        group=None,
        upward_group=None,
        recompute=False,
        replicas=None,
        optimizer=None,
        max_norm=None,
        no_sync=None,
    ):
        self.rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        schedule = with_recomputation(schedule) if recompute in (True, BEFORE) else schedule
        self.schedule = with_messages(verify(schedule))
        self.stages, self.loss = dict(stages), loss
        self.there = {part.kind for _, _, part in self.schedule.all_parts()}
        self.recompute = bool(recompute)
        self.neighbors = Neighbors(schedule, between, group, upward_group or group)
        self.ending = Ending(self.stages, replicas, optimizer, max_norm)
        self.no_sync = no_sync or {}
        self._check(ranks)
        own_stages(self, self.stages)
        self.neighbors.connect()

    def _check(self, ranks):
        if ranks != self.schedule.ranks:
            raise ValueError(f"Worker: {self.schedule!r} needs as many ranks, but the group has {ranks}")
        mine = self.schedule.stages_of(self.rank)
        if sorted(self.stages) != mine:
            raise ValueError(f"Worker: rank {self.rank} has the stages {mine}, but was given {sorted(self.stages)}")
        needed = {stage for own in mine for stage in (own, own + 1) if 0 < stage <= self.last}
        missing = needed - self.neighbors.between.keys()
        if missing:
            raise ValueError(f"Worker: rank {self.rank} must know by `between` what stages {sorted(missing)} receive")
        if self.last in self.stages and self.loss is None:
            raise ValueError(f"Worker: rank {self.rank} has the last stage, {self.last}, and needs a loss")
        if STEP in self.there and self.ending.optimizer is None:
            raise ValueError(f"Worker: {self.schedule.name} has STEP, and needs an optimizer (rank {self.rank})")
        if self.ending.replicas and REDUCE not in self.there:
            text = "has no REDUCE_GRAD for the gradients of replicas: with_steps adds it"
            raise ValueError(f"Worker: {self.schedule.name} {text} (rank {self.rank})")

    @property
    def last(self):
        return self.schedule.stages - 1

    @takes(inputs=torch.Tensor, targets=torch.Tensor)
    def step(self, inputs=None, targets=None):
        """Forward and backward of a batch. Gradients are added to those that are there.

        ``inputs`` for the rank of the first stage, ``targets`` for that of the last; their rows divide by M. Returns
        the mean loss on the rank of the last stage (of each training step, if there are several), None elsewhere.
        """
        return self._follow(self.schedule.programs[self.rank], inputs, targets)

    @takes(inputs=torch.Tensor, targets=torch.Tensor)
    @torch.no_grad()
    def evaluate(self, inputs=None, targets=None):
        """What ``step`` returns, of forward passes alone."""
        program = self.schedule.programs[self.rank]
        loss = self._follow([each for each in program if each.parts[0].kind in FORWARDS], inputs, targets)
        self.held.clear()
        return loss

    def _follow(self, program, inputs, targets):
        self.inputs = self._microbatches("inputs", inputs, 0)
        self.targets = self._microbatches("targets", targets, self.last)
        self.results = {}  # a pass's result -> the tensor, or (work, tensor) while it is received
        self.held = {}  # (stage, microbatch) -> the input, and what says where backward begins; then a SplitBackward
        self.losses, self.sends = {}, deque()
        self.place = 0
        self.again = {part for each in program for part in each.parts if part.kind == RECOMPUTE}
        while self.place < len(program):
            self.place += 1
            for action in program[self.place - 1].parts:
                with region(str(action)):
                    DO[action.kind](self, action)
        for work in self.sends:
            work.wait()
        for stage in list(self.ending.reducing):
            self.ending.wait(stage)
        return self._loss()

    def _loss(self):
        if not self.losses:
            return None
        losses = torch.stack([self.losses[microbatch] for microbatch in range(self.schedule.microbatches)])
        return losses.sum() if self.schedule.steps == 1 else losses.view(self.schedule.steps, -1).sum(1)

    def _microbatches(self, what, rows, stage):
        if stage not in self.stages:
            return None
        count = self.schedule.microbatches
        if rows is None or len(rows) % count:
            got = "None" if rows is None else f"{len(rows)}: {len(rows)} / {count} is not whole"
            raise ValueError(
                f"Worker: rank {self.rank} has stage {stage}, and needs {what} whose rows divide into {count} "
                f"microbatches, got {got}"
            )
        return rows.chunk(count)

    # Passes.

    def forward(self, action):
        stage, _, microbatch = action
        input, run = self._input(action), partial(self._run, action)
        again = Again(run, input) if self.recompute or action._replace(kind=RECOMPUTE) in self.again else None
        output = again.output if again else run(input)
        if stage == self.last:
            self.losses[microbatch] = output.detach()
        else:
            self.results[action] = output.detach()
        edge = None if again else edge_of(output)
        self.held[stage, microbatch] = input, again.edge if again else lambda: edge

    def _input(self, action):
        stage, _, microbatch = action
        if stage == 0:
            return self.inputs[microbatch]
        return self._take(Action(stage - 1, FORWARD, microbatch)).requires_grad_()

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
        gradient = None if last else self._take(Action(action.stage + 1, BACKWARD, action.microbatch))
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
        """In which all but the last of a stage and a step run."""
        following = backward.microbatch + 1
        last = following == self.schedule.microbatches or self.schedule.step_of(following) > self.schedule.step_of(
            backward.microbatch
        )
        return nullcontext() if last or backward.stage not in self.no_sync else self.no_sync[backward.stage]()

    def _pass_back(self, action, gradient):
        if action.stage > 0:
            if gradient is None:
                what = f"the output of stage {action.stage} does not depend on its input"
                raise ValueError(
                    f"Worker: {what}, so it has no gradient for stage {action.stage - 1} (rank {self.rank})"
                )
            self.results[result_of(action)] = gradient

    # The end of a training step.

    def reduce(self, action):
        self.ending.reduce(action.stage)

    def wait_reduce(self, action):
        self.ending.wait(action.stage)

    def add_norm(self, action):
        before = needs(action, self.schedule.stages, self.schedule.ranks)
        self.ending.add_norm(self._take(before) if before else torch.zeros((), device=self.device))
        if action.stage < self.schedule.ranks - 1:
            self.results[action] = self.ending.squares

    def check(self, action):
        if action.stage < self.schedule.ranks - 1:
            squares = self._take(needs(action, self.schedule.stages, self.schedule.ranks))
        else:
            squares = self.ending.squares
        self.results[action] = squares
        if self.ending.check(squares):
            self._go_back(action)

    def optimizer_step(self, action):
        self.ending.step()

    def _go_back(self, check):
        """To where the step was wrong. All ranks do; what is on its way was made with wrong weights."""
        if check.stage > 0:
            self.send(check._replace(kind=f"SEND_{CHECK}"))
        for receive in under_way(self.schedule, self.rank, check):
            self.receive(receive)
        for result in [result for result, found in self.results.items() if isinstance(found, tuple)]:
            self._take(result)
        self.results.clear()
        self.held.clear()
        self.place = place_of_step(self.schedule.programs[self.rank], check)

    # Messages.

    def _take(self, result):
        """What another stage has made: of this rank, or received."""
        found = self.results.pop(result)
        if isinstance(found, tuple):
            work, found = found
            work.wait()
        return found

    def send(self, action):
        stage, kind, number = action
        kind = kind.removeprefix("SEND_")
        with purpose("communication"):
            tensor = self.results.pop(Action(stage, kind, number)).contiguous()
        if kind == FORWARD:
            self.neighbors.check_output(tensor, stage)
        self.sends.append(self.neighbors.send(tensor, stage + 1 if kind in DOWN else stage - 1))
        while self.sends and self.sends[0].is_completed():
            self.sends.popleft()  # and with it the tensor; gloo tells only who waits, and keeps it until the end

    def receive(self, action):
        """(work, tensor), of what the stage before has made, or the one after."""
        stage, kind, number = action
        kind = kind.removeprefix("RECV_")
        source = stage - 1 if kind in DOWN else stage + 1
        with purpose("activations" if kind == FORWARD else "communication"):
            buffer = self.neighbors.buffer(kind, stage, self.device)
        self.results[Action(source, kind, number)] = self.neighbors.receive(buffer, source), buffer

    @property
    def device(self):
        return next((tensor.device for stage in self.stages.values() for tensor in stage.parameters()), None)


DO = {
    "F": Worker.forward,
    "B": Worker.backward,
    "I": Worker.backward_input,
    "W": Worker.backward_weight,
    "R": Worker.recompute_forward,
    **dict(zip(ENDING, [Worker.reduce, Worker.wait_reduce, Worker.add_norm, Worker.check, Worker.optimizer_step])),
    **{kind: Worker.send if kind.startswith("SEND") else Worker.receive for kind in MESSAGES},
}
