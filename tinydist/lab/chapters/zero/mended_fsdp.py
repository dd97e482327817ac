"""An FSDP training loop with four bugs, none of which raises an error."""

from functools import cache
from math import inf

import torch
import torch.distributed as dist

from ....simulator.matching import ranks_in_words
from ...collectives import waited
from ...errors import Wrong
from ...exercise import exercise
from ...heard import LOUD, REDUCES, heard, loud
from ...ranks import Case, Trials
from ...values import close
from ...verdict import Property
from .fsdp_bytes import held_at_start, nbytes, peak
from .fsdp_mistakes import suspects
from .own_work import HOLDS, Counted, own_work
from .resumed_training import (
    CLIPPED,
    LAYER,
    LAYERS,
    STEPS,
    UNCLIPPED,
    Batches,
    Checkpoint,
    trained,
)

rightly_trained = cache(trained)


def case(ranks, about, moving, max_norm):
    kind = (moving, max_norm)
    return Case(ranks, lambda rank: (Checkpoint(moving), Batches(rank), max_norm), about, kind, kind=kind)


STILL = ("from momenta of 0, no clipping", False, inf)
MOVING = ("from a checkpoint's momenta, no clipping", True, inf)
SHORT = (f"max_norm={UNCLIPPED}, larger than any gradient", True, UNCLIPPED)
LONG = (f"max_norm={CLIPPED}", True, CLIPPED)
WORLDS = {STILL: (3,), MOVING: (2, 3), SHORT: (2,), LONG: (1, 3)}


def properties(answer):
    watched = Counted(answer)
    trials = Trials(watched, [case(ranks, *kind) for kind, worlds in WORLDS.items() for ranks in worlds])
    loud_trials = Trials(loud(answer, REDUCES), [case(3, *STILL)])
    yield Property("own work", HOLDS, trials.each(own_work(watched)))
    yield Property("runs", "it ends on 1, 2 and 3 ranks, and returns the shards", all_of(trials.end, trials.each(form)))
    yield Property("waits", "whatever is started is waited for", trials.each(waited))
    yield Property("sharded", "at the start of a step, a rank holds its shards alone", trials.each(held_at_start))
    yield Property("backward", "the gradients are those of each layer's own weight", judged(trials, STILL))
    yield Property("momentum", "each rank goes on from its own part", judged(trials, MOVING))
    yield Property("clipping", "all ranks clip by the norm of all shards", judged(trials, SHORT, LONG))
    yield Property("bytes", "3(p-1)/p of the weights in each step, and a norm", trials.each(nbytes))
    yield Property("peak", "besides shards, one layer's weight and its gradient", trials.each(peak))
    yield Property("heard", "the shards follow what the reduce-scatters give", loud_trials.each(heard(loud_shards)))


def all_of(*judges):
    def judge():
        for each in judges:
            each()

    return judge


def judged(trials, *kinds):
    return trials.each(values, lambda case: case.kind in [kind[1:] for kind in kinds])


def form(trial):
    for rank, got in enumerate(trial.returned):
        if not isinstance(got, list | tuple) or len(got) != LAYERS:
            raise Wrong(f"rank {rank} returned a {type(got).__name__}, where a list of {LAYERS} shards is right")
        size = LAYER // 4 // trial.case.ranks
        wrong = [getattr(each, "numel", int)() for each in got if getattr(each, "numel", int)() != size]
        if wrong:
            raise Wrong(f"rank {rank} returned {wrong[0]} numbers of a layer, where its shard has {size}")


def alike(mine, theirs):
    return all(map(close, mine, theirs))


def values(trial):
    p, (moving, max_norm) = trial.case.ranks, trial.case.expected
    right = rightly_trained(p, moving, max_norm)
    wrong = [rank for rank in range(p) if not alike([each.flatten() for each in trial.returned[rank]], right[rank])]
    if wrong:
        for words, mistake in suspects(p, max_norm).items():
            theirs = trained(p, moving, max_norm, **mistake)
            if all(alike([each.flatten() for each in trial.returned[rank]], theirs[rank]) for rank in wrong):
                raise Wrong(words)
        rank = wrong[0]
        got = [each.flatten() for each in trial.returned[rank]]
        layer = next(i for i in range(LAYERS) if not close(got[i], right[rank][i]))
        place = next(i for i in range(len(got[layer])) if not close(got[layer][i], right[rank][layer][i]))
        raise Wrong(
            f"after {STEPS} steps, the shard of layer {layer} on {ranks_in_words(wrong)} is wrong: on rank {rank} it "
            f"is {got[layer][place]:.6g} at position {place}, where {right[rank][layer][place]:.6g} is right"
        )


def loud_shards(trial):
    right = trained(trial.case.ranks, *trial.case.expected, loud=[1 + (r == LOUD) for r in range(trial.case.ranks)])
    if not all(alike([each.flatten() for each in got], theirs) for got, theirs in zip(trial.returned, right)):
        raise Wrong("they do not follow")


@exercise(
    chapter="06_zero",
    title="Find four bugs in FSDP",
    minutes=20,
    difficulty=4,
    targets={
        "sharded": "between steps, a rank holds 1/p of weights and momenta",
        "values": "the shards of what one process gets: backward, momentum, clipping each by itself; 1, 2 and 3 ranks",
        "peak": "shards, momenta, gradients of the own part; one layer's weight and gradient; two layers are granted",
        "bytes": "3(p-1)/p of the weights a step, and a norm",
    },
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
    check=properties,
)
def mended_fsdp(checkpoint, batches, max_norm):
    """Mend this FSDP training: it has four bugs.

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
    shards = [checkpoint.weight(layer).flatten().chunk(p)[rank] for layer in layers]
    momenta = [checkpoint.momentum(layer).flatten().chunk(p)[-rank].clone() for layer in layers]
    for inputs, targets in batches:
        y, saved, gradients = inputs, [], []
        for shard in shards:
            x, weight = y, gather(shard)
            y = torch.tanh(x @ weight)
            saved.append((x, y))
        grad = 2 * (y - targets) / y.numel()
        for (x, y), shard in zip(reversed(saved), reversed(shards)):
            grad = grad * (1 - y * y)
            mean = torch.empty_like(shard)
            dist.reduce_scatter_single(mean, (x.T @ grad).flatten() / p)
            gradients.insert(0, mean)
            grad = grad @ weight.T
        square = sum(gradient.square().sum() for gradient in gradients)
        factor = (max_norm / square.sqrt()).clamp(max=1.0)
        for shard, momentum, gradient in zip(shards, momenta, gradients):
            momentum.mul_(0.9).add_(gradient * factor)
            shard.sub_(momentum, alpha=0.1)
    return shards
