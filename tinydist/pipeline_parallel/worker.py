"""A rank of a pipeline: does what its schedule says, with real tensors.

    RECV_F   post a receive for the output of the stage before
    F        wait for it; stage(input), and loss(output, target) / M on the last stage
    SEND_F   post a send of the output
    RECV_B   post a receive for the gradient of the output
    B        wait for it; the gradients of weights and input       or I: that of the input, and W: those of the weights
    SEND_B   post a send of the gradient of the input

Passes are done by passes.py, messages by neighbors.py, what ends a training step by ending.py. Here they are put
together: the program is followed, and after a step that was wrong it is followed again from there.

Bytes a step: messages.py counts the messages, each of one microbatch of what passes between two stages.
"""

import torch
import torch.distributed as dist

from ..annotate import own_stages, region
from ..rules import function, named, rate, stated, takes
from .actions import CHECK, ENDING, FORWARD, MESSAGES, RECV_F, REDUCE, SEND_F, STEP, needs
from .ending import Ending
from .messages import with_messages
from .neighbors import Neighbors
from .passes import Passes
from .recompute import with_recomputation
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
        self.stages = dict(stages)
        self.neighbors = Neighbors(schedule, self.stages, between, group, upward_group or group)
        self.passes = Passes(self.schedule, self.stages, loss, self.neighbors, bool(recompute), no_sync)
        self.ending = Ending(self.stages, replicas, optimizer, max_norm)
        self._check(ranks)
        own_stages(self, self.stages)
        self.neighbors.connect()

    def _check(self, ranks):
        if ranks != self.schedule.ranks:
            raise ValueError(f"Worker: {self.schedule!r} needs as many ranks, but the group has {ranks}")
        mine, last = self.schedule.stages_of(self.rank), self.schedule.stages - 1
        there = {part.kind for _, _, part in self.schedule.all_parts()}
        if sorted(self.stages) != mine:
            raise ValueError(f"Worker: rank {self.rank} has the stages {mine}, but was given {sorted(self.stages)}")
        needed = {stage for own in mine for stage in (own, own + 1) if 0 < stage <= last}
        missing = needed - self.neighbors.between.keys()
        if missing:
            raise ValueError(f"Worker: rank {self.rank} must know by `between` what stages {sorted(missing)} receive")
        if last in self.stages and self.passes.loss is None:
            raise ValueError(f"Worker: rank {self.rank} has the last stage, {last}, and needs a loss")
        if STEP in there and self.ending.optimizer is None:
            raise ValueError(f"Worker: {self.schedule.name} has STEP, and needs an optimizer (rank {self.rank})")
        if self.ending.replicas and REDUCE not in there:
            text = "has no REDUCE_GRAD for the gradients of replicas: with_steps adds it"
            raise ValueError(f"Worker: {self.schedule.name} {text} (rank {self.rank})")

    def _what_is_done(self):
        """Kind of action -> who does it."""
        passes, messages = self.passes, self.neighbors
        ending = self.reduce, self.wait_reduce, self.add_norm, self.check, self.optimizer_step
        return {
            "F": passes.forward,
            "B": passes.backward,
            "I": passes.backward_input,
            "W": passes.backward_weight,
            "R": passes.recompute_forward,
            **dict(zip(ENDING, ending)),
            **{kind: messages.send if kind.startswith("SEND") else messages.receive for kind in MESSAGES},
        }

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
        program = [each for each in self.schedule.passes(self.rank) if each.kind in FORWARDS]
        loss = self._follow(program, inputs, targets)
        self.passes.held.clear()
        return loss

    def _follow(self, program, inputs, targets):
        self.passes.begin(program, inputs, targets)
        self.neighbors.begin()
        self.place, does = 0, self._what_is_done()
        while self.place < len(program):
            self.place += 1
            for action in program[self.place - 1].parts:
                with region(str(action)):
                    does[action.kind](action)
        self.neighbors.end()
        for stage in list(self.ending.reducing):
            self.ending.wait(stage)
        return self.passes.mean_loss()

    # The end of a training step.

    def reduce(self, action):
        self.ending.reduce(action.stage)

    def wait_reduce(self, action):
        self.ending.wait(action.stage)

    def add_norm(self, action):
        before = needs(action, self.schedule.stages, self.schedule.ranks)
        self.ending.add_norm(self.neighbors.take(before) if before else torch.zeros((), device=self.neighbors.device))
        if action.stage < self.schedule.ranks - 1:
            self.neighbors.results[action] = self.ending.squares

    def check(self, action):
        if action.stage < self.schedule.ranks - 1:
            squares = self.neighbors.take(needs(action, self.schedule.stages, self.schedule.ranks))
        else:
            squares = self.ending.squares
        self.neighbors.results[action] = squares
        if self.ending.check(squares):
            self._go_back(action)

    def optimizer_step(self, action):
        self.ending.step()

    def _go_back(self, check):
        """To where the step was wrong. All ranks do; what is on its way was made with wrong weights."""
        if check.stage > 0:
            self.neighbors.send(check._replace(kind=f"SEND_{CHECK}"))
        for receive in under_way(self.schedule, self.rank, check):
            self.neighbors.receive(receive)
        self.neighbors.drop()
        self.passes.held.clear()
        self.place = place_of_step(self.schedule.programs[self.rank], check)
