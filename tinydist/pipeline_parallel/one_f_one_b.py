"""1F1B as a plain loop: what ``Worker`` does with ``make_schedule("1F1B", ...)``, in the order of one program.

    rank 0   F0 F1 F2 | F3 B0 F4 B1 | B2 B3 B4        warm-up: P - 1 - rank forwards, until the last rank has work
    rank 1      F0 F1 | F2 B0 F3 B1 F4 B2 | B3 B4     steady state: one forward, one backward
    rank 2         F0   B0 F1 B1 F2 B2 ...            cool-down: the backwards that are left

A rank holds P - rank microbatches at most. Sends are not waited for before the end, so those that cross cannot block;
with NCCL they can, and each direction takes a group of its own (``grad_group``).
Source: Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, 2021 (PipeDream-Flush); Megatron-LM's
forward_backward_pipelining_without_interleaving.
"""

from collections import deque

import torch
import torch.distributed as dist

from ..rules import count, function, validate


@validate(stage=torch.nn.Module, activation_spec=torch.Tensor, loss=function, microbatches=count)
@validate(inputs=torch.Tensor, targets=torch.Tensor, group=dist.ProcessGroup, grad_group=dist.ProcessGroup)
def step_1f1b(stage, activation_spec, loss, microbatches, inputs=None, targets=None, group=None, grad_group=None):
    """Forward and backward of a batch: ``stage`` is this rank's, the other arguments are those of ``Worker`` and its
    ``step``. Gradients are added to those that are there. Returns the mean loss on the last rank, None elsewhere."""
    rank, last = dist.get_rank(group), dist.get_world_size(group) - 1
    grad_group = grad_group or group
    inputs = in_microbatches("inputs", inputs, microbatches, rank) if rank == 0 else None
    targets = in_microbatches("targets", targets, microbatches, rank) if rank == last else None
    held, sends, losses = deque(), [], []  # (input, output) of microbatches between forward and backward

    def forward(microbatch):
        if rank == 0:
            x = inputs[microbatch]
        else:
            x = torch.empty_like(activation_spec, device=next(stage.parameters()).device)
            dist.recv(x, group=group, group_src=rank - 1)
            x.requires_grad_()
        y = stage(x)
        if rank == last:
            y = loss(y, targets[microbatch]) / microbatches
            losses.append(y.detach())
        else:
            sends.append(dist.isend(y.detach().contiguous(), group=group, group_dst=rank + 1))
        held.append((x, y))

    def backward():
        x, y = held.popleft()
        gradient = None if rank == last else torch.empty_like(y)
        if rank < last:
            dist.recv(gradient, group=grad_group, group_src=rank + 1)
        y.backward(gradient)
        if rank > 0:
            sends.append(dist.isend(x.grad, group=grad_group, group_dst=rank - 1))

    ahead = min(last - rank, microbatches)
    for microbatch in range(ahead):  # warm-up
        forward(microbatch)
    for microbatch in range(ahead, microbatches):  # steady state
        forward(microbatch)
        backward()
    for _ in range(ahead):  # cool-down
        backward()
    for send in sends:
        send.wait()
    return torch.stack(losses).sum() if losses else None


def in_microbatches(name, rows, microbatches, rank):
    if rows is None or len(rows) % microbatches:
        got = "None" if rows is None else f"{len(rows)} rows"
        raise ValueError(f"{name}: rows must be divisible by microbatches ({microbatches}), got {got} (rank {rank})")
    return rows.chunk(microbatches)
