"""Stage 3: a layer's weight is whole only while the layer runs."""

from functools import partial

import torch
import torch.distributed as dist

from ...collectives import each_sends, only_these, waited
from ...errors import Wrong
from ...exercise import exercise
from ...heard import LOUD, heard, loud
from ...ranks import Trials
from ...values import close
from ...verdict import Property
from .chain import LAYER, part, weights
from .gathered_layers import ACTIVATIONS, CHANGE, LAYERS, STEPS, case, train
from .held import at_most
from .linear_mistakes import added, in_one_process, mean_of, suspects
from .own_work import HOLDS, INSTEAD, Counted, own_work

WHERE = "output", "gradient of x", "gradient of the shard"


def properties(answer):
    watched = Counted(partial(train, answer))
    trials = Trials(watched, map(case, (1, 2, 3)))
    loud_trials = Trials(loud(partial(train, answer)), [case(3)])
    yield Property("own work", HOLDS, trials.each(own_work(watched)))
    yield Property("runs", "it ends on 1, 2 and 3 ranks, and all get a gradient", trials.end)
    yield Property("waits", "whatever is started is waited for", trials.each(waited))
    yield Property("output", "x W^T, with the whole weight as it is now", trials.each(partial(values, 0)))
    yield Property(
        "gradients",
        "of x; and of the shard, the mean over the ranks, added to what is there",
        trials.each(partial(values, 1, 2)),
    )
    yield Property("freed", "after forward no weight is whole", trials.each(freed))
    yield Property("peak", "one layer's weight and its gradient are whole", trials.each(peak))
    yield Property("bytes", "3(p-1)/p of the weights in each step", trials.each(nbytes))
    yield Property("heard", "the results follow what the collectives give", loud_trials.each(heard(loud_step)))


def values(*places_and_trial):
    """Places in what a step gives that must be right."""
    *places, trial = places_and_trial
    p, whole, first, so_far = trial.case.ranks, weights(LAYERS), weights(LAYERS), None
    for step in range(STEPS):
        each = [in_one_process(whole, rank, step) for rank in range(p)]
        so_far = added(so_far, [gradients for *_, gradients in each])
        mean = mean_of(so_far, [1] * p)
        last = mean_of([gradients for *_, gradients in each], [1] * p)
        for rank, found in enumerate(trial.returned):
            right = [*each[rank][:2], [part(g, rank, p) for g in mean]]
            for place in places:
                if not same(found[step][place], right[place]):
                    known = suspects(place, rank, p, step, whole, first, so_far, mean, last)
                    why = next((words for words, theirs in known.items() if same(found[step][place], theirs)), None)
                    raise Wrong(
                        f"in step {step}, on rank {rank} the {WHERE[place]} "
                        f"{why or apart(found[step][place], right[place])}"
                    )
        whole = [CHANGE * weight for weight in whole]


def same(mine, right):
    if isinstance(mine, list):
        return all(map(same, mine, right))
    return close(torch.from_numpy(mine).flatten(), right.flatten())


def apart(mine, right):
    layer = ""
    if isinstance(mine, list):
        number = next(i for i, each in enumerate(mine) if not same(each, right[i]))
        layer, mine, right = f"of layer {number} ", mine[number], right[number]
    mine, right = torch.from_numpy(mine).flatten(), right.flatten()
    if mine.shape != right.shape:
        return f"{layer}has {len(mine)} numbers, where {len(right)} are right"
    place = next(i for i in range(len(mine)) if not close(mine[i], right[i]))
    return f"{layer}is {mine[place]:.6g} at position {place}, where {right[place]:.6g} is right"


def freed(trial):
    """A layer is granted: that which runs last in forward is the first in backward."""
    for rank, found in enumerate(trial.returned):
        for step, (*_, more) in enumerate(found):
            at_most(
                trial,
                rank,
                more,
                LAYER + ACTIVATIONS,
                f"more after forward of step {step} than before it",
                f"Activations have less than {ACTIVATIONS:,}, and each of {LAYERS} weights {LAYER:,}: they are kept "
                "whole for backward. Save x and the shard, and not the weight, which autograd saves, too, if it "
                "computes with it",
            )


def peak(trial):
    p = trial.case.ranks
    own = 2 * LAYERS * LAYER // p
    for rank in range(p):
        at_most(
            trial,
            rank,
            trial.run.memory[rank].peak,
            own + 4 * LAYER + ACTIVATIONS,
            "at the peak",
            f"Shards and their gradients have {own:,}, a weight {LAYER:,}, and its gradient as much. In backward, too, "
            "a weight must go when its layer is done; and a shard that is a view (chunk, split) keeps the whole",
        )


def nbytes(trial):
    only_these(trial, {"all_gather", "reduce_scatter"}, INSTEAD)
    p = trial.case.ranks
    each_sends(
        trial, STEPS * LAYERS * 3 * (p - 1) * LAYER // p, f"{STEPS} steps x {LAYERS} layers x 3(p-1)/p x {LAYER:,}", why
    )


def why(times):
    known = {
        2 / 3: "One of three collectives is missing, and values are right: the weight is kept from forward to backward",
        4 / 3: "One collective a layer is too many",
    }
    return next((words for factor, words in known.items() if abs(times - factor) < 1e-6), "")


def loud_step(trial):
    """In the first step, rank LOUD's part of each weight arrives doubled, and its gradients count twice."""
    p = trial.case.ranks
    louder = [1 + (rank == LOUD) for rank in range(p)]
    whole = [torch.cat([w * each for w, each in zip(louder, weight.chunk(p))]) for weight in weights(LAYERS)]
    each = [in_one_process(whole, rank, 0) for rank in range(p)]
    mean = mean_of([gradients for *_, gradients in each], louder)
    for rank, found in enumerate(trial.returned):
        right = [*each[rank][:2], [part(g, rank, p) for g in mean]]
        if not all(same(found[0][place], right[place]) for place in range(3)):
            raise Wrong("they do not follow")


@exercise(
    chapter="06_zero",
    title="Gather and free a layer (stage 3)",
    minutes=30,
    difficulty=4,
    targets={
        "values": f"output and gradients as of the whole weight, a chain of {LAYERS} layers, 2 steps; 1, 2 and 3 ranks",
        "freed": "after forward, activations and no whole weight; one is granted",
        "peak": "shards, their gradients, one layer's weight and its gradient; two layers more are granted",
        "bytes": "3(p-1)/p of the weights a step: two all-gathers and a reduce-scatter",
    },
    hints=[
        "What ctx.save_for_backward keeps stays in memory until backward. Which tensors does backward need that it "
        "cannot have in another way, and which can it gather again?",
        "Write gather() once: an empty row of p times the shard, dist.all_gather_single(row, shard), "
        "row.view(rows, -1). forward and backward both call it; a local variable is freed when they return.",
        "With y = x W^T: the gradient of x is grad @ W, that of W is grad^T @ x, of W's shape. Of the latter the rank "
        "needs its own part of the mean: reduce-scatter it, flat.",
        "backward returns one gradient for each argument of forward: (of_x, of_shard), the second as flat as the "
        "shard. Save with ctx.save_for_backward(x, shard).",
    ],
    why="This is FSDP: model states take 16/p bytes a parameter, however large the model, and the price is one "
    "all-gather more, half again as many bytes as DDP sends. Keeping the weights from forward to backward "
    "(reshard_after_forward=False) pays no such price, and saves no memory at the peak.",
    check=properties,
)
def sharded_linear(x, shard, rows):
    """Return x W^T, where each rank has only its shard of W, and W is whole only while it is used.

    ``shard`` is this rank's part of W [rows, columns], flat; p divides it. Then ``shard.grad`` is this rank's part of
    the mean over the ranks of W's gradient, added to what it was, as autograd does; and x has the gradient of its own
    rank's loss. The shards change between steps.
    """
    p = dist.get_world_size()

    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, shard):
            # Gather W and use it. What must be saved for backward?
            raise NotImplementedError

        @staticmethod
        def backward(ctx, grad):
            # W again. The gradient of x, and this rank's part of the mean gradient of W.
            raise NotImplementedError

    return Linear.apply(x, shard)
