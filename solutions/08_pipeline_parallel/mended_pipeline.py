"""A pipeline's worker with three bugs: one hangs, two show in no error."""

import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from tinydist.hardware import Cluster, Device, Link
from tinydist.lab.author import Case, Memory, Messages, Own, Seconds, Values, Waits, Wrong, exercise, kind, mistake

SIZES = [(2, 5), (3, 4), (4, 2), (1, 3)]  # ranks, microbatches
WIDTH, ROWS, LAYERS = 8, 16, 8
TENSOR = ROWS * WIDTH * 4  # bytes
THERE = 0.5  # each gradient, before the step
RATE = LAYERS * 2 * ROWS * WIDTH * WIDTH  # a forward in a second
DEVICE = Device("products alone", {"float32": RATE, "float64": RATE}, math.inf, math.inf)
WIRES = Link("ranks where a forward takes 1 s, a backward 2 s, and messages nothing", 0.0, math.inf, "mesh")


class Stage(nn.Module):
    """Microbatches are counted by the calls of forward."""

    def __init__(self, number, dtype):
        super().__init__()
        generator = torch.Generator().manual_seed(number)
        weights = [torch.randn(WIDTH, WIDTH, generator=generator, dtype=dtype) for _ in range(LAYERS)]
        self.weights = nn.ParameterList([weight / WIDTH**0.5 for weight in weights])
        for weight in self.weights:
            weight.grad = torch.full_like(weight, THERE)
        self.calls, self.arrived = 0, {}  # microbatch -> the gradient of its output

    def forward(self, x):
        number, self.calls = self.calls, self.calls + 1
        for weight in self.weights:
            x = torch.tanh(x @ weight)
        x.register_hook(lambda gradient: self.arrived.update({number: gradient.tolist()}))  # a tensor would be held
        return x


def batch(microbatches, dtype=torch.float32):
    """[(inputs, targets)]"""
    generator = torch.Generator().manual_seed(100)
    return [tuple(torch.randn(2, ROWS, WIDTH, generator=generator, dtype=dtype)) for _ in range(microbatches)]


def case(ranks, microbatches, dtype=torch.float32):
    about = f"{microbatches} microbatches" + " of float64" * (dtype == torch.float64)
    return Case(ranks, lambda rank: (Stage(rank, dtype), batch(microbatches, dtype)), about)


def test_cases():
    for size in SIZES:
        yield case(*size)
    yield case(3, 7, torch.float64)


def step(answer, stage, microbatches):
    rank, last, count = dist.get_rank(), dist.get_world_size() - 1, len(microbatches)
    loss = answer(stage, microbatches, torch.empty_like(microbatches[0][0], device="meta"))
    if stage.calls != count:
        raise Wrong(f"rank {rank} calls its stage {stage.calls} times, where {count} are right")
    for number in range(count):
        if number not in stage.arrived:
            raise Wrong(f"on rank {rank}, no gradient comes to the output of microbatch {number}: no backward")
    if rank == last and not (isinstance(loss, float) or (isinstance(loss, torch.Tensor) and loss.numel() == 1)):
        raise Wrong(f"rank {rank} returned {kind(loss)}, where the mean loss is right")
    arrived = {
        f"the gradient that output {number} gets": torch.tensor(stage.arrived[number], dtype=stage.weights[0].dtype)
        for number in range(count)
    }
    gradients = {f"weights[{number}].grad": weight.grad for number, weight in enumerate(stage.weights)}
    returned = torch.tensor(torch.as_tensor(loss).item() if rank == last else 0.0)
    return {**arrived, **gradients, "what is returned": returned}


def by_what(trial, got, want, own, pick):
    """Is it the right gradient but for a factor, the same on all ranks?"""
    ratio = float(got[0].norm() / want[0].norm())
    if all(torch.allclose(mine, ratio * right, rtol=1e-3, atol=1e-6) for mine, right in zip(got, want)):
        return f"It is {ratio:.3g} times what is right. Divide each microbatch's loss by their number, once"
    return None


def of_one(trial, got, want, own, pick):
    """Is what the last rank returns the loss of one microbatch?"""
    if want[0].dim():
        return None
    count = len(trial.case.arguments(0)[1])
    factor = float(got[-1] / want[-1])
    for times, words in {
        count: "This is the sum of the losses of all microbatches, where their mean is right",
        1 / count: "The loss that is returned is divided by the number of microbatches twice",
        count / trial.case.ranks: "The sum of the losses is divided by the number of ranks, and not of microbatches",
    }.items():
        if times != 1 and abs(factor / times - 1) < 1e-4:
            return words
    if not factor:
        return "What is returned is 0: the last rank returns the mean loss"
    stages = [trial.case.arguments(rank)[0] for rank in range(trial.case.ranks)]
    for number, (x, target) in enumerate(trial.case.arguments(0)[1]):
        for stage in stages:
            x = stage(x)
        if torch.isclose(got[-1].double(), F.mse_loss(x, target).double(), rtol=1e-4):
            return f"This is the loss of microbatch {number} alone. Return the mean of all"
        if torch.isclose(got[-1].double(), F.mse_loss(x, target).double() / count, rtol=1e-4):
            return f"This is what microbatch {number} alone adds to the mean. Return the sum of what all add"
    return None


def activations(trial):
    """Bytes at their peak, by rank."""
    return [max(held["activations"] for _, held in memory.over_time()) for memory in trial.run.memory]


AHEAD = "ahead = min(ranks - 1 - rank, M)"
ORDER = "Keep the order of 1F1B, and mend the sends"
LOSS = "y = F.mse_loss(y, target) / M"
MEAN = "The loss of the batch is the mean of its microbatches' losses"
FIRST = "    rank, ranks, M = dist.get_rank(), dist.get_world_size(), len(microbatches)\n"
ARRIVES = """            x = torch.empty_like(like, device="cpu")
            dist.recv(x, rank - 1)
            x.requires_grad_()
"""
BLOCKING = (
    "    sends = []\n",
    "",
    "sends.append(dist.isend(y.detach(), rank + 1))  # a neighbor may be sending, too",
    "dist.send(y.detach(), rank + 1)",
    "sends.append(dist.isend(x.grad, rank - 1))",
    "dist.send(x.grad, rank - 1)",
    "    for send in sends:\n        send.wait()\n",
    "",
)


@exercise(
    title="Find three bugs in a pipeline's worker",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    program=step,
    targets=[
        Own(
            "no worker but the one that is given",
            "mend the worker that is given",
            (
                "tinydist.pipeline_parallel.worker",
                "tinydist.pipeline_parallel.one_f_one_b",
                "torch.distributed.pipelining",
            ),
        ),
        Waits("each message is received and waited for"),
        Messages("M outputs down and M gradients back between neighbors"),
        Values(
            "backward of each microbatch begins with its own gradient; the gradients and the loss are those of the "
            "mean over the whole batch, as in one process, and gradients are added to what is there; 1, 2, 3 and 4 "
            "ranks, and fewer microbatches than ranks",
            explain=[by_what, of_one],
        ),
        Memory(
            "min(P - rank, M) microbatches held, as 1F1B has it",
            slack=2 * TENSOR,
            of=activations,
            what="of activations",
            advice="Keep the order of 1F1B, and hold nothing longer than it is needed",
        ),
        Seconds(
            "(M+P-1)(F+B) of virtual time, with F = 1 s and B = 2 s: the order stays 1F1B",
            ORDER,
            clusters=lambda case: [Cluster(DEVICE, case.ranks, WIRES)],
        ),
    ],
    mistakes=[
        mistake(
            "A send waits until it is received. Where two neighbors both send, one down and one back, neither comes to "
            "its receive",
            *BLOCKING,
            given=True,
        ),
        mistake(
            "Gradients come back in the order in which outputs went down: of those that are held, the first is next, "
            "and this takes the last",
            "x, y = held.pop(0)  # the one whose gradient arrives next",
            "x, y = held.pop()",
            given=True,
        ),
        mistake(f"{MEAN}: it is divided by the number of ranks", LOSS, LOSS.replace("M", "ranks"), given=True),
        mistake(
            "The gradients that were there before the step are lost: a step adds to them, as backward() does",
            FIRST,
            FIRST + "    stage.zero_grad()\n",
        ),
        mistake(
            "What arrives is added to what arrived before: the gradient of each output is what came for it alone",
            FIRST,
            FIRST + "    total = torch.zeros_like(like, device='cpu')\n",
            "dist.recv(gradient, rank + 1)",
            "dist.recv(gradient, rank + 1)\n            gradient = total.add_(gradient).clone()",
        ),
        mistake(
            "What arrives for one microbatch overwrites what the stage still needs of another: each needs a tensor of "
            "its own",
            FIRST,
            FIRST + "    one = torch.empty_like(like, device='cpu')\n",
            ARRIVES,
            "            x = one\n            dist.recv(x, rank - 1)\n            x = x.detach().requires_grad_()\n",
        ),
        mistake(
            "All forwards come before the first backward: so nothing crosses, but every microbatch is held",
            AHEAD,
            "ahead = M",
        ),
        mistake(
            "The ranks do too few forwards before their first backward: so nothing crosses, but a rank waits where it "
            "could do another",
            AHEAD,
            "ahead = 0",
        ),
    ],
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
    sends = []

    def forward(microbatch):
        x, target = microbatches[microbatch]
        if rank > 0:
            x = torch.empty_like(like, device="cpu")
            dist.recv(x, rank - 1)
            x.requires_grad_()
        y = stage(x)
        if rank < ranks - 1:
            sends.append(dist.isend(y.detach(), rank + 1))  # a neighbor may be sending, too
        else:
            y = F.mse_loss(y, target) / M
            losses.append(y.detach())
        held.append((x, y))

    def backward():
        x, y = held.pop(0)  # the one whose gradient arrives next
        gradient = None
        if rank < ranks - 1:
            gradient = torch.empty_like(like, device="cpu")
            dist.recv(gradient, rank + 1)
        y.backward(gradient)
        if rank > 0:
            sends.append(dist.isend(x.grad, rank - 1))

    ahead = min(ranks - 1 - rank, M)
    for microbatch in range(ahead):
        forward(microbatch)
    for microbatch in range(ahead, M):
        forward(microbatch)
        backward()
    for _ in range(ahead):
        backward()
    for send in sends:
        send.wait()
    return sum(losses)
