"""A pipeline's worker with three bugs: one hangs, two show in no error."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from ....simulator.deadlock import DeadlockError
from ...errors import Wrong
from ...exercise import exercise
from ...memory import draw_memory
from ...messages import left_open, many, messages
from ...own_work import Watched, calls_none_of
from ...ranks import Case, Trials
from ...values import close, kind
from ...verdict import Property
from .watched_stage import HELD, ROWS, TENSOR, WIDTH, Stage, alike, batch, in_one_process

SIZES = [(2, 5), (3, 4), (4, 2), (1, 3)]  # ranks, microbatches
SOLVED = {home: home for home in ("tinydist.pipeline_parallel.worker", "torch.distributed.pipelining")}


def case(ranks, microbatches):
    def arguments(rank):
        return Stage(rank), batch(microbatches), torch.empty(ROWS, WIDTH, device="meta")

    return Case(ranks, arguments, f"{microbatches} microbatches", microbatches, kind=microbatches)


def properties(answer):
    watched = Watched(answer)
    own_work = calls_none_of(watched, SOLVED, "mend the worker that is given")
    trials = Trials(watched, [case(*size) for size in SIZES])
    yield Property("own work", "no worker but the one that is given", trials.each(own_work))
    yield Property("runs", "it ends on 1, 2, 3 and 4 ranks", comes_to_its_end(trials))
    yield Property("waits", "whatever is started is waited for", trials.each(waited))
    yield Property("messages", "each microbatch once down, once back", trials.each(down_and_back))
    yield Property("pairs", "each output gets its own microbatch's gradient", trials.each(of_its_own))
    yield Property("gradients", "those of the mean loss of the batch", trials.each(of_the_mean))
    yield Property("loss", "the last rank returns the mean loss", trials.each(mean_loss))
    yield Property("memory", "as in 1F1B: min(P - rank, M) microbatches", trials.each(holds_few))


def comes_to_its_end(trials):
    def judge():
        try:
            trials.end()
        except Wrong as wrong:
            if any(isinstance(trial.error, DeadlockError) for trial in trials.all):
                raise Wrong(f"{wrong}\n{CROSSED}", wrong.picture) from None
            raise

    return judge


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


def of_its_own(trial):
    right, _, _ = in_one_process(trial.case.ranks, trial.case.expected)
    for rank in reversed(range(trial.case.ranks)):
        stage = trial.arguments[rank][0]
        if stage.calls != trial.case.expected:
            raise Wrong(
                f"rank {rank} calls its stage {many(stage.calls, 'time')}, where {trial.case.expected} are right"
            )
        for number, expected in enumerate(right[rank]):
            if number not in stage.arrived:
                raise Wrong(f"on rank {rank}, no gradient comes to the output of microbatch {number}: no backward")
            found = torch.tensor(stage.arrived[number])
            if not alike(found, expected):
                raise Wrong(f"on rank {rank}, the output of microbatch {number} gets {whose(found, right[rank])}")


def whose(found, right):
    for number, expected in enumerate(right):
        if alike(found, expected):
            return (
                f"the gradient of microbatch {number}. Gradients come back in the order in which outputs went down: "
                "which of those that are held is first?"
            )
    return "a gradient that is no microbatch's: has it arrived when it is used, and is it added to nothing else?"


def of_the_mean(trial):
    p, count = trial.case.ranks, trial.case.expected
    _, right, _ = in_one_process(p, count)
    for rank in range(p):
        for weight, expected in zip(trial.arguments[rank][0].weights, right[rank], strict=True):
            if weight.grad is None:
                raise Wrong(f"on rank {rank}, there are no gradients")
            if not close(weight.grad, expected):
                ratio = float(weight.grad.norm() / expected.norm()) if alike(weight.grad, expected) else None
                raise Wrong(f"on rank {rank}, the gradients are wrong{by_what(ratio, p, count)}")


def mean_loss(trial):
    p, count = trial.case.ranks, trial.case.expected
    value, (*_, right) = trial.returned[-1], in_one_process(p, count)
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if not isinstance(value, float):
        raise Wrong(f"rank {p - 1} returned {kind(value)}, where the mean loss is right")
    if abs(value - right) > 1e-5 * right:
        ratio = value / right
        raise Wrong(f"rank {p - 1} returns {value:.4f}, where {right:.4f} is right{by_what(ratio, p, count)}")


def by_what(ratio, ranks, microbatches):
    """What a result that is too large or too small has been divided by."""
    M, P = microbatches, ranks
    known = {
        M / P: f"it is divided by the number of ranks, {P}, and not by that of microbatches, {M}",
        M: f"it is never divided by the number of microbatches, {M}",
        1 / M: f"it is divided by the number of microbatches, {M}, twice",
        1 / P: f"it is divided by the number of ranks, {P}, too",
    }
    for factor, words in known.items():
        if ratio and factor != 1 and abs(ratio - factor) < 1e-3 * factor:
            mean = "The loss of the batch is the mean of its microbatches' losses"
            return f": {ratio:.3g} times what is right. {mean}: {words}"
    return f": {ratio:.3g} times what is right" if ratio else ""


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
        "gradients, loss": "those of the mean loss of the whole batch, as in one process",
        "messages": "M outputs down and M gradients back between neighbors",
        "memory": "min(P - rank, M) microbatches held, as 1F1B has it",
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
    should be those of the mean squared error over the whole batch; the last rank returns it.
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
