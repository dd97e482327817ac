"""Executes a schedule on a rank of a pipeline, with real tensors.

    RECV_F   post a receive for the output of the stage before
    F        wait for it; stage(input), and loss(output, target) / M on the last stage
    SEND_F   post a send of the output
    RECV_B   post a receive for the gradient of the output
    B        wait for it; the gradients of weights and input       or I: that of the input, and W: those of the weights
    SEND_B   post a send of the gradient of the input

``StageCompute`` does the passes, p2p.py the messages, step_end.py what ends a training step. The ``Worker`` follows the
program, and after a step that was wrong it goes on from there. one_f_one_b.py is one such program as a plain loop.

Bytes per step: messages.py counts the messages, each of one microbatch of what passes between two stages.
"""

from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist

from ..annotate import own_stages, region
from ..rules import function, named, rate, stated, validate
from .backward import ForwardAgain, SplitBackward, edge_of, with_recomputation
from .messages import with_messages
from .one_f_one_b import in_microbatches
from .p2p import P2PCommunicator
from .replay import BEFORE, RECOMPUTED
from .schedule import (
    BACKWARD,
    CHECK,
    COMPUTE,
    ENDING,
    FORWARD,
    FORWARDS,
    MESSAGES,
    RECOMPUTE,
    Action,
    Schedule,
    result_of,
)
from .step_end import OptimizerPhase
from .steps import place_of_step, under_way
from .verifier import verify

how = stated(
    f"{', '.join(RECOMPUTED)}, True (before) or False",
    lambda given: isinstance(given, str | bool) and given in (*RECOMPUTED, True, False),
)


@validate(schedule=Schedule, stages=named(torch.nn.Module), activation_spec=torch.Tensor | dict, loss=function)
@validate(group=dist.ProcessGroup, grad_group=dist.ProcessGroup, recompute=how)
@validate(replicas=dist.ProcessGroup, optimizer=torch.optim.Optimizer, max_norm=rate, no_sync=named(function))
class Worker:
    """
    schedule:      a Schedule, of as many ranks as the group has. It is verified.
    stages:        stage -> module, of this rank's stages.
    activation_spec:  a tensor of the shape and dtype of what passes between stages for one microbatch; on ``meta``, it
                   takes no memory. Or stage -> what it receives, if they differ.
    loss:          ``loss(output, target)``, a mean over rows, for the last stage.
    group:         whose ranks are the schedule's. None: all.
    grad_group:    for messages to lower ranks, the same as ``group`` if None. NCCL runs the messages of two ranks in a
                   group one after another, and sends that cross can block there: give it a second group.
    recompute:     hold inputs only, and run forward again "before" backward (or True), or "inside" of it.
    replicas:      the ranks that have the same stages, in other pipelines. Their gradients become the mean of all in
                   REDUCE_GRAD.
    optimizer:     of the parameters of this rank's stages, for STEP, which sets gradients to zero once it is certain.
    max_norm:      of the gradients of all ranks, where the schedule checks it. A parameter of two stages counts twice.
    no_sync:       stage -> the ``no_sync`` of what reduces its gradients in backward (DDP, ZeRO), for all backwards of
                   a step but the last.
    """

    def __init__(
        self,
        schedule,
        stages,
        activation_spec,
        loss=None,
        group=None,
        grad_group=None,
        recompute=False,
        replicas=None,
        optimizer=None,
        max_norm=None,
        no_sync=None,
    ):
        self.rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        schedule = with_recomputation(schedule) if recompute in (True, BEFORE) else schedule
        self.schedule, self.stages = with_messages(verify(schedule)), dict(stages)
        self.p2p = P2PCommunicator(schedule, self.stages, activation_spec, group, grad_group or group)
        self.compute = StageCompute(self.schedule, self.stages, loss, self.p2p, bool(recompute), no_sync)
        self._check(ranks)
        self.end = OptimizerPhase(self.schedule, self.stages, self.p2p, replicas, optimizer, max_norm)
        own_stages(self, self.stages)
        self.p2p.connect()

    def _check(self, ranks):
        if ranks != self.schedule.ranks:
            raise ValueError(f"Worker: {self.schedule!r} needs a group of that size, but the group has {ranks}")
        mine, last = self.schedule.stages_of(self.rank), self.schedule.stages - 1
        if sorted(self.stages) != mine:
            raise ValueError(f"Worker: rank {self.rank} has the stages {mine}, but was given {sorted(self.stages)}")
        needed = {stage for own in mine for stage in (own, own + 1) if 0 < stage <= last}
        if missing := sorted(needed - self.p2p.activation_spec.keys()):
            raise ValueError(f"Worker: activation_spec must have what stages {missing} receive (rank {self.rank})")
        if last in self.stages and self.compute.loss is None:
            raise ValueError(f"Worker: rank {self.rank} has the last stage, {last}, and needs a loss")

    @validate(inputs=torch.Tensor, targets=torch.Tensor)
    def step(self, inputs=None, targets=None):
        """Run forward and backward of a batch. Gradients accumulate.

        ``inputs`` for the rank of the first stage, ``targets`` for that of the last; their rows divide by M. Returns
        the mean loss on the rank of the last stage (of each training step, if there are several), None elsewhere.
        """
        return self._follow(self.schedule.programs[self.rank], inputs, targets)

    @validate(inputs=torch.Tensor, targets=torch.Tensor)
    @torch.no_grad()
    def evaluate(self, inputs=None, targets=None):
        """What ``step`` returns, of forward passes alone."""
        program = [each for each in self.schedule.passes(self.rank) if each.kind in FORWARDS]
        loss = self._follow(program, inputs, targets)
        self.compute.held.clear()
        return loss

    def _follow(self, program, inputs, targets):
        self.compute.begin(program, inputs, targets)
        self.p2p.begin()
        self.place, execute = 0, self._by_kind()
        while self.place < len(program):
            self.place += 1
            for action in program[self.place - 1].parts:
                with region(str(action)):
                    execute[action.kind](action)
        self.p2p.end()
        self.end.wait_for_all()
        return self.compute.mean_loss()

    def _by_kind(self):
        """Kind of action -> who does it."""
        compute, end, p2p = self.compute, self.end, self.p2p
        passes = compute.forward, compute.backward, compute.backward_input, compute.backward_weight
        ends = end.reduce, end.wait_reduce, end.add_norm, self._check_step, end.step
        messages = {kind: p2p.send if kind.startswith("SEND") else p2p.receive for kind in MESSAGES}
        return {**dict(zip(COMPUTE + ENDING, passes + ends)), RECOMPUTE: compute.recompute_forward, **messages}

    def _check_step(self, check):
        """Roll back to the wrong step, on all ranks; discard messages in flight (computed with wrong weights)."""
        if not self.end.check(check):
            return
        if check.stage > 0:
            self.p2p.send(check._replace(kind=f"SEND_{CHECK}"))
        for receive in under_way(self.schedule, self.rank, check):
            self.p2p.receive(receive)
        self.p2p.drop()
        self.compute.held.clear()
        self.place = place_of_step(self.schedule.programs[self.rank], check)


class StageCompute:
    """Forward and backward of a rank's stages, by microbatch. ``p2p`` has what they need of other stages, and make for
    them; the other arguments are the Worker's.

    Every microbatch's loss is a mean over its rows, and counts 1/M, so a step equals one on the whole batch. Held of a
    microbatch is its input, and the graph between F and B; where forward is run once more, only the input.
    """

    def __init__(self, schedule, stages, loss, p2p, recompute, no_sync):
        self.schedule, self.stages, self.loss, self.p2p = schedule, stages, loss, p2p
        self.recompute, self.no_sync, self.last = recompute, no_sync or {}, schedule.stages - 1

    def begin(self, program, inputs, targets):
        size = self.schedule.microbatches, self.p2p.rank
        self.inputs = in_microbatches("Worker: inputs", inputs, *size) if 0 in self.stages else None
        self.targets = in_microbatches("Worker: targets", targets, *size) if self.last in self.stages else None
        self.held = {}  # (stage, microbatch) -> the input, where backward begins, ForwardAgain; then a SplitBackward
        self.losses = {}  # by microbatch
        self.again = {part for each in program for part in each.parts if part.kind == RECOMPUTE}

    def mean_loss(self):
        """Of each training step; None without the last stage."""
        if not self.losses:
            return None
        losses = torch.stack([self.losses[microbatch] for microbatch in range(self.schedule.microbatches)])
        return losses.sum() if self.schedule.steps == 1 else losses.view(self.schedule.steps, -1).sum(1)

    def forward(self, action):
        stage, _, microbatch = action
        input, run = self._input(stage, microbatch), partial(self._run, action)
        again = ForwardAgain(run, input) if self.recompute or action._replace(kind=RECOMPUTE) in self.again else None
        output = again.output if again else run(input)
        if stage == self.last:
            self.losses[microbatch] = output.detach()
        else:
            self.p2p.results[action] = output.detach()
        self.held[stage, microbatch] = input, None if again else edge_of(output), again

    def _input(self, stage, microbatch):
        if stage == 0:
            return self.inputs[microbatch]
        return self.p2p.take(Action(stage - 1, FORWARD, microbatch)).requires_grad_()

    def _run(self, action, input):
        output = self.stages[action.stage](input)
        if action.stage != self.last:
            return output
        return self.loss(output, self.targets[action.microbatch]) * self.schedule.steps / self.schedule.microbatches

    def recompute_forward(self, action):
        input, _, again = self.held[action.stage, action.microbatch]
        self.held[action.stage, action.microbatch] = input, again.edge(), None

    def backward(self, action):
        input, edge, gradient = self._arrived(action)
        if edge:
            with self._no_sync(action):
                torch.autograd.backward(edge, gradient)
        self._pass_back(action, input.grad)
        input.grad = None

    def backward_input(self, action):
        input, edge, gradient = self._arrived(action)
        split = self.held[action.stage, action.microbatch] = SplitBackward(edge, gradient, input)
        self._pass_back(action, split.input_gradient())

    def backward_weight(self, action):
        with self._no_sync(action):
            self.held.pop((action.stage, action.microbatch)).accumulate_weights()

    def _arrived(self, action):
        """The input, where backward begins, and the gradient that it begins with; the loss needs none."""
        stage, _, microbatch = action
        gradient = None if stage == self.last else self.p2p.take(Action(stage + 1, BACKWARD, microbatch))
        input, edge, again = self.held.pop((stage, microbatch))
        return input, again.edge() if again else edge, gradient

    def _no_sync(self, backward):
        """The stage's ``no_sync()`` for the backward of all but the last microbatch of a training step."""
        last = (backward.microbatch + 1) % (self.schedule.microbatches // self.schedule.steps) == 0
        return nullcontext() if last or backward.stage not in self.no_sync else self.no_sync[backward.stage]()

    def _pass_back(self, action, gradient):
        if action.stage > 0:
            if gradient is None:
                what = f"the output of stage {action.stage} does not depend on its input"
                raise ValueError(
                    f"Worker: {what}, so it has no gradient for stage {action.stage - 1} (rank {self.p2p.rank})"
                )
            self.p2p.results[result_of(action)] = gradient
