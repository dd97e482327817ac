"""Stage 2: gradients freed while backward runs."""

from functools import partial

import torch
import torch.distributed as dist

from ....simulator.matching import ranks_in_words
from ....simulator.record import Issue, Wait
from ...collectives import collectives, each_sends, only_these, waited
from ...errors import Wrong
from ...exercise import exercise
from ...heard import LOUD, heard, loud
from ...messages import many
from ...ranks import Trials
from ...values import close
from ...verdict import Property
from .chain import LAYER
from .gradient_mistakes import LAYERS, alike, gradients, shards, suspects
from .held import at_most, peak_besides
from .own_work import HOLDS, INSTEAD, Counted, own_work
from .sharded_gradients import STEPS, case, train

SLACK = 64  # bytes: a number or two


def properties(answer):
    watched = Counted(partial(train, answer))
    trials = Trials(watched, map(case, (1, 2, 3)))
    loud_trials = Trials(loud(partial(train, answer)), [case(3)])
    yield Property("own work", HOLDS, trials.each(own_work(watched)))
    yield Property("runs", "it ends on 1, 2 and 3 ranks, and collect gives all shards", trials.end)
    yield Property("waits", "whatever is started is waited for", trials.each(waited))
    yield Property("values", "the own shard of the mean gradients, after each step", trials.each(values))
    yield Property("freed", "after backward no .grad is left", trials.each(freed))
    yield Property("kept", "collect hands out the shards, and keeps none of them", trials.each(kept))
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
        f"{ranks_in_words(wrong)} {'is' if len(wrong) == 1 else 'are'} wrong: on rank {rank} the gradient of layer "
        f"{layer} is {got[rank][layer][place]:.6g} at position {place} of its shard, where "
        f"{right[rank][layer][place]:.6g} is right"
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
            f"The shards of all {LAYERS} layers have {own:,}, a layer's gradient {LAYER:,}: what is whole must go in "
            f"the hook that reduces it. {keeper(trial, rank)}",
        )


def keeper(trial, rank):
    """Of whole gradients."""
    if most_on_their_way(trial, rank) > 2:
        return "A collective that is not waited for keeps its input: wait in the hook, or for the one before"
    return "A shard that is a view (chunk, split) keeps the whole gradient"


def most_on_their_way(trial, rank):
    """Collectives that are started and not waited for, at most."""
    now = most = 0
    for entry in trial.run.record.programs[rank]:
        now += isinstance(entry, Issue) - isinstance(entry, Wait)
        most = max(most, now)
    return most


def kept(trial):
    """Nobody has any more what collect returned."""
    handed_out = LAYERS * LAYER // trial.case.ranks
    for rank, found in enumerate(trial.returned):
        for step, (*_, more) in enumerate(found):
            what = ", the shards that collect has handed out: forget them (mine.clear())"
            if more > SLACK:
                raise Wrong(
                    f"after collect of step {step} rank {rank} still holds {more:,} bytes"
                    f"{what if more == handed_out else ' more than before training, and should hold nothing'}"
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
        "kept": "after collect as many bytes as before training",
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
