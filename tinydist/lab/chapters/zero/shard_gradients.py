"""Stage 2: gradients freed while backward runs."""

from functools import partial

import torch
import torch.distributed as dist

from ....simulator.matching import ranks_in_words
from ...collectives import collectives, each_sends, only_these, waited
from ...errors import Wrong
from ...exercise import exercise
from ...heard import LOUD, heard, loud
from ...messages import many
from ...own_work import Watched
from ...ranks import Case, Trials
from ...values import close
from ...verdict import Property
from .chain import LAYER, inputs, loss, model, noted
from .gradient_mistakes import LAYERS, alike, gradients, shards, suspects
from .held import at_most, held_now, peak_besides
from .own_work import HOLDS, INSTEAD, own_work

STEPS = 2


def case(ranks):
    return Case(ranks, lambda _: (model(LAYERS), STEPS), f"{LAYERS} layers, {STEPS} steps")


def train(answer, chain, steps):
    """After each step: the shards' gradients, the layers whose ``.grad`` is left, and the bytes held."""
    rank, found = dist.get_rank(), []
    layers = [module.weight for module in chain if hasattr(module, "weight")]
    collect = answer(list(layers))
    if not callable(collect):
        raise Wrong(f"on rank {rank} it returned {collect!r}, where it should return the function collect")
    for step in range(steps):
        loss(chain(inputs(rank, step))).backward()
        left = [number for number, weight in enumerate(layers) if weight.grad is not None]
        shards = collect()
        complete(shards, rank, step)
        found.append(([noted(shard).reshape(-1) for shard in shards], left))
        del shards
        found[-1] += (held_now(),)
    return found


def complete(shards, rank, step):
    if not isinstance(shards, list | tuple) or not all(isinstance(each, torch.Tensor) for each in shards):
        kind = type(shards).__name__
        raise Wrong(f"in step {step} collect returned a {kind} on rank {rank}, where a list of tensors is right")
    if len(shards) != LAYERS:
        more = ": each step must begin with an empty list" if len(shards) == LAYERS * (step + 1) else ""
        raise Wrong(
            f"in step {step} collect returned {many(len(shards), 'tensor')}, where {LAYERS} are right, one a "
            f"layer{more}"
        )
    size = LAYER // 4 // dist.get_world_size()
    for number, shard in enumerate(shards):
        if shard.numel() != size:
            raise Wrong(
                f"in step {step} the gradient of layer {number} has {shard.numel()} numbers on rank {rank}, where its "
                f"shard has {size}"
            )


def properties(answer):
    watched = Watched(partial(train, answer))
    trials = Trials(watched, map(case, (1, 2, 3)))
    loud_trials = Trials(loud(partial(train, answer)), [case(3)])
    yield Property("own work", HOLDS, trials.each(own_work(watched)))
    yield Property("runs", "it ends on 1, 2 and 3 ranks, and collect gives all shards", trials.end)
    yield Property("waits", "whatever is started is waited for", trials.each(waited))
    yield Property("values", "the own shard of the mean gradients, after each step", trials.each(values))
    yield Property("freed", "after backward no .grad is left", trials.each(freed))
    yield Property("kept", "collect keeps nothing for the next step", trials.each(kept))
    yield Property("peak", "the shards and a layer's gradient, not the model's", trials.each(peak))
    yield Property("bytes", "one reduce-scatter a layer: (p-1)/p of the gradients", trials.each(nbytes))
    yield Property("heard", "the gradients follow what the reduce-scatters give", loud_trials.each(heard(loud_mean)))


def values(trial, weights=None):
    """``weights``: how much each rank counts."""
    p = trial.case.ranks
    weights, own, mean = weights or [1] * p, [], []
    for step in range(STEPS):
        own.append([gradients(rank, step) for rank in range(p)])
        mean.append([sum(w * g for w, g in zip(weights, layer)) / p for layer in zip(*own[step])])
        got = [[torch.from_numpy(shard) for shard in found[step][0]] for found in trial.returned]
        right = [shards(mean[step], rank, p) for rank in range(p)]
        wrong = [rank for rank in range(p) if not alike(got[rank], right[rank])]
        if wrong:
            known = suspects(own, mean, p)
            why = next((words for words, theirs in known.items() if all(alike(got[r], theirs[r]) for r in wrong)), None)
            raise Wrong(f"in step {step}, {why or difference(wrong, got, right)}")


def difference(wrong, got, right):
    rank = wrong[0]
    layer = next(i for i in range(LAYERS) if not close(got[rank][i], right[rank][i]))
    place = next(i for i in range(len(right[rank][layer])) if not close(got[rank][layer][i], right[rank][layer][i]))
    return (
        f"{ranks_in_words(wrong)} {'is' if len(wrong) == 1 else 'are'} wrong: on rank {rank} the gradient of "
        f"layer {layer} is "
        f"{got[rank][layer][place]:.6g} at position {place} of its shard, where {right[rank][layer][place]:.6g} "
        "is right"
    )


def freed(trial):
    for rank, found in enumerate(trial.returned):
        for step, (_, left, _) in enumerate(found):
            if left:
                raise Wrong(
                    f"after backward of step {step}, {len(left)} of {LAYERS} layers still have their .grad on "
                    f"rank {rank}: "
                    "set it to None in the hook, once the own part of the mean is there (or on its way, from a copy)"
                )


def peak(trial):
    """A layer's gradient that has come, one that travels, and one more."""
    own = LAYERS * LAYER // trial.case.ranks
    for rank in range(trial.case.ranks):
        held = peak_besides(trial, rank)
        at_most(
            trial,
            rank,
            held,
            own + 3 * LAYER,
            "at the peak, besides the model and its activations",
            f"The shards of all {LAYERS} layers have {own:,}, a layer's gradient {LAYER:,}: what is whole must "
            "go in the "
            "hook that reduces it. A shard that is a view (chunk, split) keeps the whole gradient",
        )


def kept(trial):
    for rank, found in enumerate(trial.returned):
        first, *_, last = (held for *_, held in found)
        if last > first:
            raise Wrong(
                f"rank {rank} holds {last - first:,} bytes more after step {STEPS - 1} than after step 0, when "
                "the shards "
                "that collect returned are gone: it must forget what it gave, and what it waited for"
            )


def nbytes(trial):
    only_these(trial, {"reduce_scatter"}, INSTEAD)
    p = trial.case.ranks
    each_sends(
        trial, STEPS * LAYERS * (p - 1) * LAYER // p, f"{STEPS} steps x {LAYERS} layers x (p-1)/p x {LAYER:,} bytes"
    )
    calls = len(collectives(trial))
    if calls != STEPS * LAYERS:
        raise Wrong(f"rank 0 calls {many(calls, 'reduce-scatter')} in {STEPS} steps, where {STEPS * LAYERS} are right")


def loud_mean(trial):
    values(trial, [1 + (rank == LOUD) for rank in range(trial.case.ranks)])


@exercise(
    chapter="06_zero",
    title="Free gradients in time (stage 2)",
    minutes=20,
    difficulty=3,
    targets={
        "values": "this rank's part of the mean gradient of each layer, in each of 2 steps; 1, 2 and 3 ranks",
        "peak": f"the shards of {LAYERS} layers and a layer's gradient; two layers more are granted",
        "kept": "as many bytes after two steps as after one",
        "bytes": "(p-1)/p of the gradients: one reduce-scatter a layer",
    },
    hints=[
        "The hook runs when its layer's gradient is there, and the gradients of the layers before it are not yet. "
        "What does this rank need of it? All else can go at once.",
        "dist.reduce_scatter_single(mine, parameter.grad.flatten()) with an empty `mine` of numel/p numbers; divide "
        "mine by p; keep it; parameter.grad = None.",
        "collect returns the parts in the order of layers, and backward makes them in the other: keep them in a dict, "
        "parameter -> part. It hands them out and forgets them: clear the dict.",
    ],
    why="Whole gradients of all layers are never needed at the same time, and so stage 2 holds 2 + 14/p bytes a "
    "parameter at no cost in bytes sent. If a step has many microbatches, though, each of them reduces anew, unless "
    "one keeps the whole sum: then stage 1 sends less.",
    check=properties,
)
def shard_gradients(layers):
    """Keep of each layer's gradient this rank's part of the mean alone, and free the rest while backward runs.

    ``layers`` are parameters, one a layer; p divides the numbers of each. Register a hook on each, and return a
    function ``collect()``: it is called after each backward, returns a list with this rank's part of the mean gradient
    of each layer, flat, in the order of ``layers``, and keeps none of it. The hook may wait for its collective.
    """
    p = dist.get_world_size()
    mine = {}  # parameter -> this rank's part

    def ready(parameter):
        # parameter.grad is there, whole. What is kept of the mean, and what is freed?
        raise NotImplementedError

    def collect():
        # In the order of layers. The next step begins anew.
        raise NotImplementedError

    for parameter in layers:
        parameter.register_post_accumulate_grad_hook(ready)
    return collect
