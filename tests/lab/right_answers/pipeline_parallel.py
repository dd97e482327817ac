"""Other right answers to the exercises of 08_pipeline_parallel: they must pass."""

from collections import deque
from math import ceil

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import others

from tinydist.pipeline_parallel import Action

RIGHT_ANSWERS, right = others()


# gpipe


@right("gpipe")
def the_first_one_stays(rank, ranks, microbatches):
    """Whole, while all others go by; so its backward is first."""
    yield from (f"{rank}F{microbatch}" for microbatch in range(microbatches))
    yield f"{rank}B0"
    for microbatch in range(1, microbatches):
        yield from (f"{rank}R{microbatch}", f"{rank}B{microbatch}")


@right("gpipe")
def a_list_without_the_first_r(rank, ranks, microbatches):
    backwards = [f"{rank}{kind}{each}" for each in range(microbatches)[::-1] for kind in "RB"]
    return [f"{rank}F{each}" for each in range(microbatches)] + backwards[1:]


@right("gpipe")
def the_last_rank_alone_saves_one(rank, ranks, microbatches):
    """The others run forward again while they wait: that takes no time."""
    yield from (Action(rank, "F", microbatch) for microbatch in range(microbatches))
    for microbatch in reversed(range(microbatches)):
        if (rank, microbatch) != (ranks - 1, microbatches - 1):
            yield Action(rank, "R", microbatch)
        yield Action(rank, "B", microbatch)


# one_f_one_b


@right("one_f_one_b")
def forward_while_there_is_room(rank, ranks, microbatches, message):
    room = 1 + (ranks - 1 - rank) * (1 + ceil(2 * message / 3))
    forwards = backwards = 0
    while backwards < microbatches:
        if forwards < microbatches and forwards - backwards < room:
            yield f"{rank}F{forwards}"
            forwards += 1
        else:
            yield f"{rank}B{backwards}"
            backwards += 1


@right("one_f_one_b")
def two_rows_shifted(rank, ranks, microbatches, message):
    on_the_way = 0
    while 3 * on_the_way < 2 * message:
        on_the_way += 1
    ahead = min(ranks - rank - 1 + on_the_way * (ranks - rank - 1), microbatches)
    forwards = [f"{rank}F{each}" for each in range(microbatches)] + [None] * ahead
    backwards = [None] * ahead + [f"{rank}B{each}" for each in range(microbatches)]
    return [each for pair in zip(forwards, backwards) for each in pair if each]


@right("one_f_one_b")
def from_the_last_rank_upwards(rank, ranks, microbatches, message):
    """Of each rank when it begins backward of microbatch 0, while it begins another forward every 3 s."""
    held = 1
    for _ in range(rank, ranks - 1):
        away = message + 3 + message  # from the end of a forward until its gradient is there
        held += -int(-away // 3)
    actions = [Action(rank, "F", each) for each in range(min(held, microbatches))]
    for each in range(microbatches):
        actions.append(Action(rank, "B", each))
        if each + held < microbatches:
            actions.append(Action(rank, "F", each + held))
    return actions


# mended_pipeline


@right("mended_pipeline")
def in_batches_of_what_crosses(stage, microbatches, like):
    rank, ranks, M = dist.get_rank(), dist.get_world_size(), len(microbatches)
    held, losses = [], []

    def exchange(there, send=None, receive=False):
        """Send to a neighbor, and receive from it, at once."""
        buffer = torch.empty_like(like, device="cpu") if receive else None
        both = [(dist.isend, send), (dist.irecv, buffer)]
        both = [dist.P2POp(op, tensor, there) for op, tensor in both if tensor is not None]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        return buffer

    def forward(number, x):
        x = x if rank else microbatches[number][0]
        y = stage(x.requires_grad_() if rank else x)
        if rank == ranks - 1:
            y = F.mse_loss(y, microbatches[number][1]) / M
            losses.append(y.detach())
        held.append((x, y))
        return y.detach()

    def backward(gradient):
        x, y = held.pop(0)
        y.backward(gradient)
        return x.grad

    down, up = rank < ranks - 1, rank > 0
    ahead, x = min(ranks - 1 - rank, M), None
    for number in range(ahead):
        y = forward(number, exchange(rank - 1, receive=True) if up else None)
        exchange(rank + 1, y)
    if up and ahead < M:
        x = exchange(rank - 1, receive=True)
    for number in range(ahead, M):
        y = forward(number, x)
        gradient = backward(exchange(rank + 1, y, receive=True) if down else None)
        if up:
            x = exchange(rank - 1, gradient, receive=number < M - 1)
    for _ in range(ahead):
        gradient = backward(exchange(rank + 1, receive=True))
        if up:
            exchange(rank - 1, gradient)
    return sum(losses)


@right("mended_pipeline")
def in_a_queue_and_scaled_by_the_first_gradient(stage, microbatches, like):
    """The loss is a mean; its gradient is 1/M."""
    rank, last, M = dist.get_rank(), dist.get_world_size() - 1, len(microbatches)
    inputs, outputs, losses, sends = deque(), deque(), [], []

    def receive(source):
        tensor = like.new_empty(like.shape, device="cpu")
        dist.irecv(tensor, source).wait()
        return tensor

    def forward(x, target):
        x = receive(rank - 1).requires_grad_() if rank else x
        y = stage(x)
        if rank == last:
            y = F.mse_loss(y, target)
            losses.append(y.item())
        else:
            sends.append(dist.isend(y.detach(), rank + 1))
        inputs.append(x)
        outputs.append(y)

    def backward():
        gradient = torch.tensor(1 / M, dtype=like.dtype) if rank == last else receive(rank + 1)
        torch.autograd.backward(outputs.popleft(), gradient)
        x = inputs.popleft()
        if rank:
            sends.append(dist.isend(x.grad, rank - 1))

    for number, pair in enumerate(microbatches):
        forward(*pair)
        if number >= last - rank:
            backward()
    while outputs:
        backward()
    for each in sends:
        each.wait()
    return sum(losses) / M if rank == last else None


@right("mended_pipeline")
def held_by_number_and_one_send_at_a_time(stage, microbatches, like):
    """A rank waits for what it sent before to the same neighbor, before it sends again."""
    rank, ranks, M = dist.get_rank(), dist.get_world_size(), len(microbatches)
    held, total, sending = {}, 0.0, {}

    def send(tensor, to):
        if to in sending:
            sending[to].wait()
        sending[to] = dist.isend(tensor, to)

    for slot in range(M + min(ranks - 1 - rank, M)):
        number = slot - min(ranks - 1 - rank, M)
        if slot < M:
            x, target = microbatches[slot]
            if rank > 0:
                x = torch.empty_like(like, device="cpu")
                dist.recv(x, rank - 1)
                x.requires_grad_()
            y = stage(x)
            if rank < ranks - 1:
                send(y.detach(), rank + 1)
            else:
                y = (y - target).square().mean() / M
                total += y.item()
            held[slot] = x, y
        if number >= 0:
            x, y = held.pop(number)
            if rank < ranks - 1:
                gradient = torch.empty_like(like, device="cpu")
                dist.recv(gradient, rank + 1)
                y.backward(gradient)
            else:
                y.backward()
            if rank > 0:
                send(x.grad, rank - 1)
    for each in sending.values():
        each.wait()
    return total


# best_pipeline


@right("best_pipeline")
def all_choices_and_the_least_of_them(gpus, sequences, seconds, parameters, width, tokens, activations, room, speed):
    choices = []
    for stages in [each for each in range(1, gpus + 1) if gpus % each == 0 and sequences * each % gpus == 0]:
        mine, mean = sequences * stages // gpus, 4 * parameters / stages * 2 * (1 - stages / gpus)
        for size in [each for each in seconds if mine % each == 0]:
            held = min(stages * size, mine) * activations + 16 * parameters
            if held <= room * stages:
                time = (mine / size - 1 + stages) * seconds[size] / stages + mean / speed
                directions = (stages > 1) + (stages > 2)
                choices.append((time, stages, size, directions * mine * tokens * width * 2, mean))
    return min(choices)[1:] if choices else None
