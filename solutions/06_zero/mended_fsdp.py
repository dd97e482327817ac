"""An FSDP training loop with four bugs, none of which raises an error."""

from collections import defaultdict
from math import inf

import torch
import torch.distributed as dist

from tinydist.lab.author import Case, Flops, Varied, Wrong, exercise, mistake

from .chapter import BY_HAND, VIEW, Held, Sent, held_now, numbers

CLIPPED, UNCLIPPED = 3.0, 900.0  # max_norm below and above the gradients' norm
CUT = ".flatten().chunk(p)[rank].clone()"
NORM = "        dist.all_reduce(square)\n"
FACTOR = "(max_norm / square.sqrt()).clamp(max=1.0)"
SQUARES = "add their squares, and take the root of the sum"


class Checkpoint:
    """Reads whole tensors, anew at each call. ``moving``: there are momenta other than zero."""

    def __init__(self, moving, layers, width):
        self.moving, self.layers, self.width = moving, layers, width

    def weight(self, layer):
        return numbers(self.width, self.width, seed=layer) / self.width**0.5

    def momentum(self, layer):
        return numbers(self.width, self.width, seed=50 + layer) * self.moving


class Batches:
    """(inputs, targets) of each step. The bytes are noted that are held when the first is taken."""

    def __init__(self, rank, steps, rows, width, held):
        self.rank, self.steps, self.shape, self.held = rank, steps, (rows, width), held

    def __iter__(self):
        self.held["start"].append(held_now())
        for step in range(self.steps):
            inputs, targets = (numbers(*self.shape, seed=seed + 10 * step + self.rank) for seed in (1000, 2000))
            yield inputs, 50 * targets  # so that steps are large beside the weights


def case(ranks, moving, max_norm, layers=4, width=24, steps=2, rows=1):
    def arguments(rank):
        held = defaultdict(list)
        return Checkpoint(moving, layers, width), Batches(rank, steps, rows, width, held), max_norm, held

    start = "from a checkpoint's momenta" if moving else "from momenta of 0"
    clipping = {inf: "no clipping", UNCLIPPED: f"max_norm={max_norm}, larger than any gradient"}
    about = (
        f"{layers} layers, {rows} row{'s' * (rows > 1)} each, {start}, {clipping.get(max_norm, f'max_norm={max_norm}')}"
    )
    return Case(ranks, arguments, about, facts=4 * width * width)


def test_cases():
    for moving in (False, True):
        yield case(3, moving, inf)
    yield case(2, True, UNCLIPPED, width=48)  # so large that weights outside of tensors stand out
    for ranks in (2, 3, 1):
        yield case(ranks, True, CLIPPED)
    yield case(4, True, CLIPPED, layers=3, width=12, steps=3, rows=3)
    yield case(2, True, inf, layers=2, width=12, rows=3)


def train(answer, checkpoint, batches, max_norm, held):
    shards, rank = answer(checkpoint, batches, max_norm), dist.get_rank()
    if not isinstance(shards, list | tuple) or len(shards) != checkpoint.layers:
        what = type(shards).__name__
        raise Wrong(f"rank {rank} returned a {what}, where a list of {checkpoint.layers} shards is right")
    return {
        f"the shard of layer {layer}": shard.detach().flatten() if isinstance(shard, torch.Tensor) else shard
        for layer, shard in enumerate(shards)
    }


class OfLayers(Sent):
    """Whole parts of layers are counted: norms, of any kind, are not."""

    def seen(self, trial):
        sent, part = super().seen(trial), trial.case.facts / trial.case.ranks
        return sent and [each - each % part for each in sent]


class OwnRows(Flops):
    def judge(self, exercise, trial, right):
        for rank, (mine, its) in enumerate(zip(self.seen(trial), self.seen(right))):
            if sum(mine) > 1.5 * sum(its):
                numbers = f"{sum(mine):,} FLOPs, where {sum(its):,} are enough"
                raise Wrong(f"rank {rank} multiplies matrices with {numbers}: {self.holds}")


STEP = "momentum.mul_(0.9).add_(gradient * factor)\n            shard.sub_(momentum, alpha=0.1)"
MOMENTA = "checkpoint.momentum(layer).flatten().chunk(p)[rank]"


@exercise(
    title="Find four bugs in FSDP",
    minutes=20,
    difficulty=4,
    test_cases=test_cases,
    program=train,
    targets=[
        *BY_HAND,
        Held(
            "sharded",
            "when training begins, a rank holds 1/p of weights and momenta",
            noted="start",
            what="when training begins",
            slack=lambda case: case.facts,
            advice=f"Something whole is still there: who keeps it alive? {VIEW}",
        ),
        Varied(
            "the shards of what one process gets: backward, momentum, clipping each by itself; 1, 2, 3 and 4 ranks",
            scratch=True,
            variants=[
                (
                    "The momentum is clipped, or gets the gradient as it was: the factor is of the gradient, before "
                    "the "
                    "momentum gets it",
                    STEP,
                    "momentum.mul_(0.9).add_(gradient)\n            shard.sub_(momentum * factor, alpha=0.1)",
                ),
                (
                    "The momentum is clipped, or gets the gradient as it was: the factor is of the gradient, before "
                    "the "
                    "momentum gets it",
                    STEP,
                    "momentum.mul_(0.9).add_(gradient).mul_(factor)\n            shard.sub_(momentum, alpha=0.1)",
                ),
                (
                    "The momenta are those of another part: a rank's part of them is that of its weights",
                    MOMENTA,
                    MOMENTA.replace("[rank]", "[(rank + 1) % p]"),
                ),
                (
                    "The momenta are those of another part: a rank's part of them is that of its weights",
                    MOMENTA,
                    MOMENTA.replace("[rank]", "[rank - 1]"),
                ),
                (
                    "The momenta are those of another part: a rank's part of them is that of its weights",
                    MOMENTA,
                    MOMENTA.replace("[rank]", "[p - 1 - rank]"),
                ),
                (
                    "The momenta are those of another part: a rank's part of them is that of its weights",
                    MOMENTA,
                    MOMENTA.replace("[rank]", "[0]"),
                ),
                (
                    "The momenta of the checkpoint are left out: training goes on with them",
                    MOMENTA,
                    MOMENTA.replace("checkpoint.momentum(layer)", "(0 * checkpoint.momentum(layer))"),
                ),
                ("Nothing is clipped", "gradient * factor", "gradient"),
                ("Gradients that are short enough stay as they are: the factor is 1 at most", ".clamp(max=1.0)", ""),
                (
                    "The momentum decays by 0.9, and the gradient is added whole",
                    "mul_(0.9).add_(gradient * factor)",
                    "mul_(0.9).add_(gradient * factor, alpha=0.1)",
                ),
                (
                    "This is the sum over the ranks: the mean is asked for",
                    "(x.T @ grad).flatten() / p",
                    "(x.T @ grad).flatten()",
                ),
                ("The mean is divided by p twice", "(x.T @ grad).flatten() / p", "(x.T @ grad).flatten() / p**2"),
            ],
        ),
        OwnRows("each rank computes with its own rows; it may run forward once more"),
        OfLayers("3(p-1)/p of the weights a step, and a norm"),
        Held(
            "peak",
            "shards, momenta, gradients of the own part; one layer's weight and gradient; two layers are granted",
            what="at the peak",
            slack=lambda case: 2 * case.facts if case.ranks > 1 else inf,  # one rank has all of all layers
            advice="All that is whole must go when its layer is done",
        ),
    ],
    mistakes=[
        mistake(
            "The shards of the weights are views, and keep all of them alive: this is replication posing as FSDP",
            f"checkpoint.weight(layer){CUT} for layer in layers]  # a view keeps the whole",
            "checkpoint.weight(layer).flatten().chunk(p)[rank] for layer in layers]",
            given=True,
        ),
        mistake(
            "Backward computes with a weight that forward has left, the last layer's: each layer's own weight was "
            "freed, and must be gathered again before its backward",
            "            x = y\n            y = torch.tanh(x @ gather(shard))\n",
            "            x, weight = y, gather(shard)\n            y = torch.tanh(x @ weight)\n",
            "grad = grad @ gather(shard).T",
            "grad = grad @ weight.T",
            given=True,
        ),
        mistake(
            "Ranks take each other's part of the momentum (-rank is rank on 1 and on 2 ranks alone): cut the state as "
            "the weights are, by the rank's number",
            f"checkpoint.momentum(layer){CUT}",
            f"checkpoint.momentum(layer){CUT.replace('rank', '-rank')}",
            given=True,
        ),
        mistake(
            "Each rank clips by the norm of its own shards: a step then has another length on each. The square of the "
            "norm is the sum of all ranks' squares",
            NORM,
            "",
            given=True,
        ),
        mistake(
            f"The norms of the ranks are added up: {SQUARES}",
            NORM,
            "        square = square.sqrt()\n        dist.all_reduce(square)\n        square = square.square()\n",
        ),
        mistake(
            "The norm is averaged over the ranks. It is that of all shards together: their squares are added up, and "
            "nothing is divided by p",
            NORM,
            NORM + "        square /= p\n",
        ),
        mistake(
            "Each layer is clipped by its own norm: the norm is that of all layers together",
            "        square = sum(gradient.square().sum() for gradient in gradients)\n" + NORM,
            "        squares = [gradient.square().sum() for gradient in gradients]\n"
            "        for square in squares:\n            dist.all_reduce(square)\n",
            f"        factor = {FACTOR}\n        for shard, momentum, gradient in zip(shards, momenta, gradients):\n",
            "        for shard, momentum, gradient, square in zip(shards, momenta, gradients, squares):\n"
            f"            factor = {FACTOR}\n",
        ),
        mistake(
            "A weight is gathered once, and kept until backward",
            "            x = y\n            y = torch.tanh(x @ gather(shard))\n            saved.append((x, y))\n",
            "            x, weight = y, gather(shard)\n            y = torch.tanh(x @ weight)\n"
            "            saved.append((x, y, weight))\n",
            "for (x, y), shard",
            "for (x, y, weight), shard",
            "gather(shard).T",
            "weight.T",
        ),
    ],
    hints=[
        "Run check: it looks at one thing after the other. First at memory: whose memory does a view share, and how "
        "long does that memory live?",
        "In backward, look where each name got its value. Python names live on after a loop.",
        "Which rank does x[-1] belong to? On 1 and on 2 ranks -rank and rank are the same place.",
        "A norm over shards: each rank knows the squares of its own numbers only. Add them up (dist.all_reduce of one "
        "number) before the root.",
    ],
    why="None of the four raises an error, and with one rank only the stale weight shows. Clipping by local norms and "
    "states loaded by the wrong rank have been bugs of real libraries; and FSDP in which every rank still "
    "holds all weights looks as it should until the model is too large.",
)
def mended_fsdp(checkpoint, batches, max_norm):
    """Mend this FSDP training: it has four bugs. All tensors are float32.

    The model is a chain of ``tanh(x @ weight)``, of as many layers as ``checkpoint.layers``; weights are square, and p
    divides them. ``checkpoint.weight(layer)`` and ``checkpoint.momentum(layer)`` read whole tensors. A rank should keep
    its shards alone, and a whole weight only while it is used. Return this rank's shards after training, flat: those of
    what one process gets from the batches of all, with gradients clipped to ``max_norm`` and momentum 0.9.
    """
    p, rank = dist.get_world_size(), dist.get_rank()

    def gather(shard):
        row = torch.empty(p * shard.numel())
        dist.all_gather_single(row, shard)
        return row.view(checkpoint.width, checkpoint.width)

    layers = range(checkpoint.layers)
    shards = [checkpoint.weight(layer).flatten().chunk(p)[rank].clone() for layer in layers]  # a view keeps the whole
    momenta = [checkpoint.momentum(layer).flatten().chunk(p)[rank].clone() for layer in layers]
    for inputs, targets in batches:
        y, saved, gradients = inputs, [], []
        for shard in shards:
            x = y
            y = torch.tanh(x @ gather(shard))
            saved.append((x, y))
        grad = 2 * (y - targets) / y.numel()
        for (x, y), shard in zip(reversed(saved), reversed(shards)):
            grad = grad * (1 - y * y)
            mean = torch.empty_like(shard)
            dist.reduce_scatter_single(mean, (x.T @ grad).flatten() / p)
            gradients.insert(0, mean)
            grad = grad @ gather(shard).T
        square = sum(gradient.square().sum() for gradient in gradients)
        dist.all_reduce(square)
        factor = (max_norm / square.sqrt()).clamp(max=1.0)
        for shard, momentum, gradient in zip(shards, momenta, gradients):
            momentum.mul_(0.9).add_(gradient * factor)
            shard.sub_(momentum, alpha=0.1)
    return shards
