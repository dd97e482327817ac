"""A rank of a pipeline: does what its schedule says, with real tensors.

    RECV_F   post a receive for the output of the stage before
    F        wait for it; stage(input), and loss(output, target) / M on the last stage
    SEND_F   post a send of the output
    RECV_B   post a receive for the gradient of the output
    B        wait for it; the gradients of weights and input       or I: that of the input, and W: those of the weights
    SEND_B   post a send of the gradient of the input

Every microbatch's loss is a mean over its rows, and counts 1/M, so a step equals one on the whole batch. A rank holds
the input and the graph of each microbatch that is between F and B; with ``recompute`` only the input, and runs forward
once more in B or I (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016): a third more compute.

Bytes a step: messages.py counts the messages, each of one microbatch of what passes between two stages.
"""

from collections import deque
from functools import partial

import torch
import torch.distributed as dist

from ..rules import flag, function, named, takes
from ..simulator.memory import purpose
from ..simulator.modules import own_stages
from ..simulator.names import region
from .actions import BACKWARD, FORWARD, Action, result_of
from .backward import SplitBackward, edge_of
from .messages import with_messages
from .neighbors import Neighbors
from .recompute import Again
from .schedule import Schedule
from .verifier import verify


@takes(schedule=Schedule, stages=named(torch.nn.Module), between=torch.Tensor | dict, loss=function)
@takes(group=dist.ProcessGroup, upward_group=dist.ProcessGroup, recompute=flag)
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
    recompute:     hold inputs only, and run forward again in backward.
    """

    def __init__(self, schedule, stages, between, loss=None, group=None, upward_group=None, recompute=False):
        self.rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        self.schedule = with_messages(verify(schedule))
        self.stages, self.loss, self.recompute = dict(stages), loss, recompute
        self.neighbors = Neighbors(schedule, between, group, upward_group or group)
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

    @property
    def last(self):
        return self.schedule.stages - 1

    @takes(inputs=torch.Tensor, targets=torch.Tensor)
    def step(self, inputs=None, targets=None):
        """Forward and backward of a batch. Gradients are added to those that are there.

        ``inputs`` for the rank of the first stage, ``targets`` for that of the last; their rows divide by M. Returns
        the mean loss on the rank of the last stage, None elsewhere.
        """
        self.inputs = self._microbatches("inputs", inputs, 0)
        self.targets = self._microbatches("targets", targets, self.last)
        self.results = {}  # a pass's result -> the tensor, or (work, tensor) while it is received
        self.held = {}  # (stage, microbatch) -> the input, and what says where backward begins; then a SplitBackward
        self.losses, self.sends = [], deque()
        for each in self.schedule.programs[self.rank]:
            for action in each.parts:
                with region(str(action)):
                    DO[action.kind](self, action)
        for work in self.sends:
            work.wait()
        return torch.stack(self.losses).sum() if self.losses else None

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
        again = Again(run, input) if self.recompute else None
        output = again.output if again else run(input)
        if stage == self.last:
            self.losses.append(output.detach())
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
        return self.loss(output, self.targets[action.microbatch]) / self.schedule.microbatches

    def _held(self, action):
        """The input, and where backward begins."""
        input, edge = self.held.pop((action.stage, action.microbatch))
        return input, edge()

    def backward(self, action):
        input, edge = self._held(action)
        gradient = self._gradient(action)
        if edge:
            torch.autograd.backward(edge, gradient)
        self._pass_back(action, input.grad)
        input.grad = None

    def backward_input(self, action):
        input, edge = self._held(action)
        split = self.held[action.stage, action.microbatch] = SplitBackward(edge, self._gradient(action), input)
        self._pass_back(action, split.input_gradient())

    def backward_weight(self, action):
        self.held.pop((action.stage, action.microbatch)).accumulate_weights()

    def _gradient(self, action):
        """Of the stage's output; the loss needs none."""
        return None if action.stage == self.last else self._take(Action(action.stage + 1, BACKWARD, action.microbatch))

    def _pass_back(self, action, gradient):
        if action.stage > 0:
            if gradient is None:
                what = f"the output of stage {action.stage} does not depend on its input"
                raise ValueError(
                    f"Worker: {what}, so it has no gradient for stage {action.stage - 1} (rank {self.rank})"
                )
            self.results[result_of(action)] = gradient

    # Messages.

    def _take(self, result):
        """What another stage has made: of this rank, or received."""
        found = self.results.pop(result)
        if isinstance(found, tuple):
            work, found = found
            work.wait()
        return found

    def _send(self, tensor, to):
        with purpose("communication"):
            tensor = tensor.contiguous()
        self.sends.append(self.neighbors.send(tensor, to))
        while self.sends and self.sends[0].is_completed():
            self.sends.popleft()  # and with it the tensor; gloo tells only who waits, and keeps it until the end

    def _receive(self, later, source):
        """(work, tensor): what passes between stage ``later`` and the one before it, or its gradient."""
        device = next((tensor.device for stage in self.stages.values() for tensor in stage.parameters()), None)
        buffer = torch.empty_like(self.neighbors.between[later], device=device)
        return self.neighbors.receive(buffer, source), buffer

    def send_forward(self, action):
        output = self.results.pop(Action(action.stage, FORWARD, action.microbatch))
        self.neighbors.check_output(output, action.stage)
        self._send(output, action.stage + 1)

    def receive_forward(self, action):
        result = Action(action.stage - 1, FORWARD, action.microbatch)
        self.results[result] = self._receive(action.stage, action.stage - 1)

    def send_backward(self, action):
        self._send(self.results.pop(Action(action.stage, BACKWARD, action.microbatch)), action.stage - 1)

    def receive_backward(self, action):
        result = Action(action.stage + 1, BACKWARD, action.microbatch)
        with purpose("communication"):
            self.results[result] = self._receive(action.stage + 1, action.stage + 1)


DO = {
    "F": Worker.forward,
    "B": Worker.backward,
    "I": Worker.backward_input,
    "W": Worker.backward_weight,
    "SEND_F": Worker.send_forward,
    "RECV_F": Worker.receive_forward,
    "SEND_B": Worker.send_backward,
    "RECV_B": Worker.receive_backward,
}
