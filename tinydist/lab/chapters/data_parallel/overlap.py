"""Buckets whose all-reduces run while backward goes on."""

from functools import partial

import torch.distributed as dist

from ....simulator.matching import MismatchError
from ...collectives import collectives, waited
from ...errors import Wrong
from ...exercise import exercise
from ...heard import LOUD, heard, loud
from ...messages import many
from ...own_work import Watched
from ...ranks import Case, Trials
from ...verdict import Property
from .gradients import combined, right_everywhere, times
from .kept import COUNTS, FEW, MORE, WORLD, nothing_kept
from .layers import Branches, Chain, backward, build, gradients
from .own_work import HOLDS, own_work
from .step_time import in_time


def case(ranks, counts, steps=1):
    layers = f"buckets of {', '.join(map(str, counts))} layers, {many(steps, 'step')}"
    return Case(ranks, lambda rank: (build(Chain, counts, rank), steps), layers, (Chain, counts), kind=(counts, steps))


def branches(ranks, steps=2):
    about = f"two branches that odd ranks compute in another order, {many(steps, 'step')}"
    return Case(ranks, lambda rank: (build(Branches, (), rank), steps), about, (Branches, ()), kind=("branches",))


def cases():
    yield from (case(ranks, COUNTS, FEW) for ranks in (1, 2, 3, 4))
    yield case(WORLD, COUNTS, MORE)
    yield from (case(ranks, counts) for ranks in (2, 4) for counts in [(1, 2, 3), (3, 1, 3), (1, 1, 1, 1)])
    yield from (branches(ranks) for ranks in (2, 3))


def of_one_step(case):
    return case.arguments(0)[1] == 1


def train(answer, model, steps):
    """What the learner's hooks leave: gradients, after each step."""
    rank = dist.get_rank()
    finish = answer([list(bucket) for bucket in model.buckets])
    if not callable(finish):
        what = "None" if finish is None else f"a {type(finish).__name__}"
        raise Wrong(f"on rank {rank} it returned {what}, where it should return the function finish")
    found = []
    for step in range(steps):
        backward(model, rank, step)
        finish()
        found.append(gradients(model))
    return found


def properties(answer):
    watched = Watched(partial(train, answer))
    trials = Trials(watched, cases(), mean_gradients)
    loud_trials = Trials(loud(partial(train, answer)), [case(3, (1, 2))])
    yield Property("own work", HOLDS, trials.each(own_work(watched)))
    yield Property("runs", "it ends on 1, 2, 3 and 4 ranks without an error", comes_to_its_end(trials))
    yield Property("buckets", "one all-reduce for each bucket, in their order", trials.each(one_for_each_bucket))
    yield Property("waits", "every all-reduce is waited for", trials.each(waited))
    yield Property("values", "every rank has the mean gradients, after each step", trials.each(mean_gradients))
    yield Property("heard", "the gradients follow what the all-reduces give", loud_trials.each(heard(loud_mean)))
    yield Property("time", "max(backward, communication) + a tail", trials.each(in_time, of_one_step))
    yield Property("memory", "no step keeps anything for the next ones", nothing_kept(trials))


def comes_to_its_end(trials):
    def judge():
        try:
            trials.end()
        except Wrong as wrong:
            if any(isinstance(trial.error, MismatchError) for trial in trials.all):
                raise Wrong(f"{wrong}\n{SAME_ORDER}", wrong.picture) from None
            raise

    return judge


SAME_ORDER = "All ranks must start the buckets in their order, each once it is full and those before it have started."


def one_for_each_bucket(trial):
    model, steps = trial.arguments[0]
    sizes = [sum(parameter.nbytes for parameter in bucket) for bucket in model.buckets]
    for rank in range(trial.case.ranks):
        calls = collectives(trial, rank)
        others = sorted({call.name for call in calls} - {"all_reduce"})
        if others:
            raise Wrong(f"you call {' and '.join(others)}; an all-reduce for each bucket is enough")
        if len(calls) != steps * len(sizes):
            right = f"{many(len(sizes), 'bucket')} {'needs' if len(sizes) == 1 else 'need'} {steps * len(sizes)}"
            raise Wrong(
                f"rank {rank} makes {many(len(calls), 'all-reduce')} in {many(steps, 'step')}, where {right}"
                f"{miscounted(len(calls), steps, model.buckets)}"
            )
        for place, (call, nbytes) in enumerate(zip(calls, sizes * steps)):
            if call.nbytes != nbytes:
                raise Wrong(
                    f"all-reduce {place} of rank {rank} has {call.nbytes:,} bytes, where bucket {place % len(sizes)} "
                    f"has {nbytes:,}. {SAME_ORDER}"
                )


def miscounted(calls, steps, buckets):
    if calls == steps * sum(map(len, buckets)):
        return ": this is one for each parameter"
    if steps > 1 and calls == len(buckets):
        return ": the second step makes none. At its end finish must bring all back to where it began"
    return ""


def loud_mean(trial):
    mean_gradients(trial, [1 + (rank == LOUD) for rank in range(trial.case.ranks)])


def mean_gradients(trial, weights=None):
    """``weights``: how much each rank counts."""
    (kind, counts), p = trial.case.expected, trial.case.ranks
    models, before = [build(kind, counts, rank) for rank in range(p)], None
    for step, got in enumerate(zip(*trial.returned)):
        for rank, model in enumerate(models):
            backward(model, rank, step)
        own = [gradients(model) for model in models]
        right = times(combined(own, weights or [1] * p), 1 / p)
        try:
            right_everywhere(got, right, suspects(own, right, before))
        except Wrong as wrong:
            raise Wrong(f"in step {step}, {wrong}") from None
        before = right


def suspects(own, right, before):
    p = len(own)
    same = {
        f"the gradients are {p} times too large, the number of ranks: this is the sum, not the mean": times(right, p),
        f"the gradients are {p} times too small, the number of ranks: they are divided twice": times(right, 1 / p),
    }
    if before:
        same["these are the gradients of the step before: each backward must begin anew"] = before
    mixed = times(combined(every_other_swapped(own), [1] * p), 1 / p)
    each = {
        "the ranks still have their own gradients: the means were not written back": own,
        f"the gradients of one branch are mixed with those of the other. {SAME_ORDER}": every_other_swapped(
            [mixed] * p
        ),
    }
    return each | {words: [gradients] * p for words, gradients in same.items()}


def every_other_swapped(by_rank):
    """What travels together if odd ranks take the one branch where the others take the other."""
    return [branches_swapped(gradients) if rank % 2 else gradients for rank, gradients in enumerate(by_rank)]


def branches_swapped(gradients):
    other = {"one": "other", "other": "one"}
    names = {name: ".".join(other.get(part, part) for part in name.split(".")) for name in gradients}
    return {name: gradients[names[name]] for name in gradients}


@exercise(
    chapter="05_data_parallel",
    title="Overlap communication with backward",
    minutes=30,
    difficulty=4,
    targets={
        "values": "the mean over the ranks in every gradient, after each of several steps; 1, 2, 3 and 4 ranks",
        "messages": "one all-reduce for each bucket, in the order of buckets on every rank",
        "waits": "every all-reduce is waited for",
        "memory": f"as many bytes after {MORE} steps as after {FEW}",
        "time": "max(backward, communication) + a tail: an all-reduce starts when its bucket is full, or when the one "
        "before it has ended",
    },
    hints=[
        "A hook runs in the middle of backward. If it waits, backward waits. What does dist.all_reduce return with "
        "async_op=True, and who should wait for it?",
        "Keep, for each bucket, the set of parameters whose gradient is still missing. The hook takes one out. A "
        "bucket with an empty set is full.",
        "Two ranks may fill their buckets in different orders, but collectives meet in the order in which they are "
        "called. So start bucket i only after bucket i-1: while the next bucket in line is full, start it.",
        "Start: flat = torch.cat of the bucket's flattened gradients, and keep (flat, dist.all_reduce(flat, "
        "async_op=True)). In finish: wait, divide by p, split, copy into the gradients; then make the sets anew and "
        "forget what was started.",
    ],
    why="This is what DistributedDataParallel does, and why it scales: the gradients of the last layers travel while "
    "those of the first are computed, and where links are fast enough only the last bucket costs time. Its buckets "
    "of 25 MB are a choice between latency and an early start.",
    check=properties,
)
def overlap(buckets):
    """Average gradients while backward runs: start a bucket's all-reduce as soon as its last gradient is there.

    ``buckets`` are lists of parameters, the same on every rank. Register a hook on each parameter, and return a
    function ``finish()``: it is called after each backward, and leaves the mean over the ranks in every
    ``parameter.grad``. All ranks must start the buckets in their order, even where a later one is full first.
    """
    p = dist.get_world_size()
    missing = [set(bucket) for bucket in buckets]  # whose gradients are not there yet
    started = []  # for each bucket that travels: what finish needs

    def ready(parameter):
        # Its gradient is there now. Which buckets can start?
        raise NotImplementedError

    def finish():
        # Wait for each bucket and write its means back. The next backward begins anew.
        raise NotImplementedError

    for bucket in buckets:
        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(ready)
    return finish
