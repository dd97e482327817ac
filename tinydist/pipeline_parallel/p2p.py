"""Point-to-point communication with the ranks of the previous and next stages.

send       post a send of a result (nonblocking)
receive    post a receive (nonblocking)
take       the result of another stage: local, or received (blocks until it has arrived)
"""

from collections import deque
from itertools import pairwise

import torch
import torch.distributed as dist

from ..annotate import purpose
from ..torch_internals import device_of_group
from .schedule import CHECK, DOWN, FORWARD, NORM, Action


class P2PCommunicator:
    """``stages``, ``activation_spec``, ``group`` and ``grad_group`` are those of a Worker."""

    def __init__(self, schedule, stages, activation_spec, group, grad_group):
        self.rank, self.rank_of, self.stages = dist.get_rank(group), schedule.rank_of, stages
        alike = not isinstance(activation_spec, dict)
        self.activation_spec = dict.fromkeys(range(1, schedule.stages), activation_spec) if alike else activation_spec
        self.group, self.grad_group = group, grad_group

    def connect(self):
        """Warm up the P2P connections: NCCL connects two ranks at their first message in a group, which blocks both.

        In a step a rank posts a receive before it sends what the other makes that message from. So they meet here, in
        an order that is the same on all; and all ranks, as only then two alone may exchange (tied_weights.py).
        """
        if dist.get_backend(self.group) != "nccl":
            return
        for group in (self.group, self.grad_group):
            dist.all_reduce(torch.zeros(1, device=device_of_group(group)), group=group)
        stages = map(self.rank_of.__getitem__, range(len(self.rank_of)))
        for low, high in sorted({tuple(sorted(ends)) for ends in pairwise(stages) if ends[0] != ends[1]}):
            for source, to, group in ((low, high, self.group), (high, low, self.grad_group)):
                nothing = torch.zeros(1, device=device_of_group(group))
                if self.rank == source:
                    dist.isend(nothing, group=group, group_dst=to).wait()
                elif self.rank == to:
                    dist.irecv(nothing, group=group, group_src=source).wait()

    def begin(self):
        self.results = {}  # a pass's result -> the tensor, or (work, tensor) while it is received
        self.sends = deque()

    def send(self, action):
        stage, kind, number = action
        kind = kind.removeprefix("SEND_")
        with purpose("communication"):
            tensor = self.results.pop(Action(stage, kind, number)).contiguous()
        if kind == FORWARD:
            self._check_output(tensor, stage)
        there = self.rank_of[stage + 1 if kind in DOWN else stage - 1]
        group = self.group if there > self.rank else self.grad_group
        self.sends.append(dist.isend(tensor, group=group, group_dst=there))
        while self.sends and self.sends[0].is_completed():
            self.sends.popleft()  # and with it the tensor; gloo tells only who waits, and keeps it until the end

    def receive(self, action):
        stage, kind, number = action
        kind = kind.removeprefix("RECV_")
        source = stage - 1 if kind in DOWN else stage + 1
        with purpose("activations" if kind == FORWARD else "communication"):
            buffer = self._buffer(kind, stage)
        there = self.rank_of[source]
        group = self.group if there < self.rank else self.grad_group
        self.results[Action(source, kind, number)] = dist.irecv(buffer, group=group, group_src=there), buffer

    def take(self, result):
        found = self.results.pop(result)
        if isinstance(found, tuple):
            work, found = found
            work.wait()
        return found

    def drop(self):
        """Discard received and pending messages."""
        for result in [result for result, found in self.results.items() if isinstance(found, tuple)]:
            self.take(result)
        self.results.clear()

    def end(self):
        for work in self.sends:
            work.wait()

    @property
    def device(self):
        return next((tensor.device for stage in self.stages.values() for tensor in stage.parameters()), None)

    def _buffer(self, kind, stage):
        """For what a stage receives: squares of the norm, or what passes between it and the one before, or after."""
        if kind in (NORM, CHECK):
            return torch.empty((), device=self.device)
        return torch.empty_like(self.activation_spec[stage if kind == FORWARD else stage + 1], device=self.device)

    def _check_output(self, output, stage):
        like = self.activation_spec[stage + 1]
        if output.shape != like.shape or output.dtype != like.dtype:
            raise ValueError(
                f"Worker: activation_spec of stage {stage + 1} is {like.dtype} {list(like.shape)}, "
                f"but the output of stage {stage} is {output.dtype} {list(output.shape)} (rank {self.rank})"
            )
