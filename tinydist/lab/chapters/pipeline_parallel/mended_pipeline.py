"""A pipeline's worker with three bugs: one hangs, two show in no error.

What it computes is judged in gradients.py, and the time that it takes in virtual_time.py.
"""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F

from ...errors import Wrong
from ...exercise import exercise
from ...memory import draw_memory
from ...messages import left_open, many, messages
from ...own_work import Watched, calls_none_of
from ...ranks import Case, Trials
from ...verdict import Property
from .gradients import THERE, mean_loss, of_its_own, of_the_mean
from .virtual_time import takes_as_long
from .watched_stage import HELD, ROWS, TENSOR, WIDTH, Stage, batch

SIZES = [(2, 5), (3, 4), (4, 2), (1, 3)]  # ranks, microbatches
SOLVED = {home: home for home in ("tinydist.pipeline_parallel.worker", "torch.distributed.pipelining")}


def case(ranks, microbatches):
    def arguments(rank):
        stage = Stage(rank)
        for weight in stage.weights:
            weight.grad = torch.full_like(weight, THERE)
        return stage, batch(microbatches), torch.empty(ROWS, WIDTH, device="meta")

    return Case(ranks, arguments, f"{microbatches} microbatches", microbatches, kind=microbatches)


def properties(answer):
    watched = Watched(answer)
    own_work = calls_none_of(watched, SOLVED, "mend the worker that is given")
    trials = Trials(watched, [case(*size) for size in SIZES])
    yield Property("own work", "no worker but the one that is given", trials.each(own_work))
    yield Property("runs", "it ends on 1, 2, 3 and 4 ranks", partial(trials.end, CROSSED))
    yield Property("waits", "whatever is started is waited for", trials.each(waited))
    yield Property("messages", "each microbatch once down, once back", trials.each(down_and_back))
    yield Property("pairs", "each output gets its own microbatch's gradient", trials.each(of_its_own))
    yield Property("gradients", "those of the mean loss of the batch are added", trials.each(of_the_mean))
    yield Property("loss", "the last rank returns the mean loss", trials.each(mean_loss))
    yield Property("memory", "as in 1F1B: min(P - rank, M) microbatches", trials.each(holds_few))
    yield Property("time", "as in 1F1B: (M+P-1)(F+B)", trials.each(takes_as_long))


CROSSED = (
    "A send waits until it is received. Where two neighbors both send, one down and one back, neither comes to its "
    "receive"
)


def waited(trial):
    left = left_open(trial)
    if left:
        raise Wrong(left)


def down_and_back(trial):
    p, count = trial.case.ranks, trial.case.expected
    sent = [message.ranks for message in messages(trial.run)]
    for here in range(p - 1):
        for ends, what in (((here, here + 1), "outputs"), ((here + 1, here), "gradients of outputs")):
            if sent.count(ends) != count:
                raise Wrong(
                    f"rank {ends[0]} sends {many(sent.count(ends), 'message')} to rank {ends[1]}, where the {what} of "
                    f"{count} microbatches are {count}"
                )


def holds_few(trial):
    """What is sent and received may stay until the end of the step, and a few tensors more."""
    count = trial.case.expected
    for rank, memory in enumerate(trial.run.memory):
        most = min(trial.case.ranks - rank, count)
        held = max(held["activations"] for _, held in memory.over_time())
        granted = most * HELD + (2 * count + 6) * TENSOR
        if held > granted:
            raise Wrong(
                f"rank {rank} holds {held:,} bytes of activations, where min(P - rank, M) = {most} of {count} "
                f"microbatches are between forward and backward, and take {most * HELD:,}: keep the order of 1F1B, and "
                "hold nothing longer than it is needed",
                draw_memory(trial, rank),
            )


@exercise(
    chapter="08_pipeline_parallel",
    title="Find three bugs in a pipeline's worker",
    minutes=25,
    difficulty=3,
    targets={
        "runs": "no ranks wait for each other for ever; 1, 2, 3 and 4 ranks, and fewer microbatches than ranks",
        "pairs": "backward of each microbatch begins with its own gradient",
        "gradients, loss": "those of the mean loss of the whole batch, as in one process; added to what is there",
        "messages": "M outputs down and M gradients back between neighbors",
        "memory": "min(P - rank, M) microbatches held, as 1F1B has it",
        "time": "(M+P-1)(F+B) of virtual time, with F = 1 s and B = 2 s: the order stays 1F1B",
    },
    hints=[
        "Run check and read the report of the deadlock: in which call does each of the two ranks wait, and what would "
        "the other have to do first?",
        "dist.isend returns at once, with something to wait() for. Keep it, and wait at the end of the step: then each "
        "rank comes to its receive.",
        "held is a list of microbatches between forward and backward. list.pop() takes the last of it. Which one's "
        "gradient arrives next?",
        "Each microbatch's mean loss counts 1/M in the mean of the batch. How many ranks there are does not matter.",
    ],
    why="With one microbatch nothing crosses and nothing is mixed up, and with M = P the loss looks right: all three "
    "wait for a larger run. Real workers post a send and a receive that cross together, with batch_isend_irecv, so "
    "that neither blocks the other.",
    check=properties,
)
def mended_pipeline(stage, microbatches, like):
    """Mend this worker of 1F1B: it has three bugs.

    ``stage`` is this rank's part of the model, ``microbatches`` a list of (inputs, targets), of which the first rank
    uses the inputs and the last the targets. ``like`` has the shape and dtype of what passes between ranks. Gradients
    should be those of the mean squared error over the whole batch, added to those that are there; the last rank returns
    this error. The order of the passes is right.
    """
    rank, ranks, M = dist.get_rank(), dist.get_world_size(), len(microbatches)
    held, losses = [], []  # (input, output) of microbatches between forward and backward

    def forward(microbatch):
        x, target = microbatches[microbatch]
        if rank > 0:
            x = torch.empty_like(like, device="cpu")
            dist.recv(x, rank - 1)
            x.requires_grad_()
        y = stage(x)
        if rank < ranks - 1:
            dist.send(y.detach(), rank + 1)
        else:
            y = F.mse_loss(y, target) / ranks
            losses.append(y.detach())
        held.append((x, y))

    def backward():
        x, y = held.pop()
        gradient = None
        if rank < ranks - 1:
            gradient = torch.empty_like(like, device="cpu")
            dist.recv(gradient, rank + 1)
        y.backward(gradient)
        if rank > 0:
            dist.send(x.grad, rank - 1)

    ahead = min(ranks - 1 - rank, M)
    for microbatch in range(ahead):
        forward(microbatch)
    for microbatch in range(ahead, M):
        forward(microbatch)
        backward()
    for _ in range(ahead):
        backward()
    return sum(losses)
