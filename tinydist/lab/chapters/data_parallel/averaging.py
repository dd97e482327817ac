"""The mean over all samples, of ranks that have different numbers of them."""

import torch
import torch.distributed as dist

from ...collectives import collectives, waited
from ...errors import Wrong
from ...exercise import exercise
from ...heard import LOUD, heard, loud
from ...messages import many
from ...own_work import Watched
from ...ranks import Case, Trials
from ...verdict import Property
from .gradients import combined, right_everywhere, times
from .own_work import HOLDS, own_work

SHAPES = {"weight": (3, 2), "bias": (3,), "scale": ()}
FLOAT = 4  # bytes
NBYTES = 10 * FLOAT
SAMPLES = [(3,), (4, 1), (2, 2), (2, 0, 1), (0, 0, 4), (1, 2, 3, 4), (5, 0, 1, 2, 0, 3, 1, 7)]  # by rank


def own_gradients(rank, samples):
    """Of the mean over this rank's samples; zeros where there are none."""
    generator = torch.Generator().manual_seed(rank)
    gradients = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    return times(gradients, float(samples > 0))


def arguments(rank, samples):
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES.values()]
    if samples:  # else there was no backward
        for parameter, gradient in zip(parameters, own_gradients(rank, samples).values()):
            parameter.grad = gradient
    return parameters, samples


def case(samples):
    counts = "samples by rank: " + ", ".join(map(str, samples))
    return Case(len(samples), lambda rank: arguments(rank, samples[rank]), counts, list(samples), kind=samples)


def properties(answer):
    watched = Watched(answer)
    trials = Trials(watched, [case(samples) for samples in SAMPLES], mean_of_samples)
    loud_trials = Trials(loud(answer), [case((3, 2, 1))])
    yield Property("own work", HOLDS, trials.each(own_work(watched)))
    yield Property("runs", "it ends on 1, 2, 3, 4 and 8 ranks without an error", trials.end)
    yield Property("waits", "whatever is started is waited for", trials.each(waited))
    yield Property("values", "every rank has the gradient of the mean over all samples", trials.each(mean_of_samples))
    yield Property("calls", "one all-reduce, of all gradients and one number", trials.each(one_call))
    yield Property("heard", "the gradients follow what the all-reduce gives", loud_trials.each(heard(loud_mean)))


def loud_mean(trial):
    mean_of_samples(trial, [count * (1 + (rank == LOUD)) for rank, count in enumerate(trial.case.expected)])


def mean_of_samples(trial, samples=None):
    """``samples``: how much each rank counts."""
    samples = samples or trial.case.expected
    got = [dict(zip(SHAPES, [p.grad for p in parameters])) for parameters, _ in trial.arguments]
    own = [own_gradients(rank, count) for rank, count in enumerate(samples)]
    right = combined(own, [count / sum(samples) for count in samples])
    right_everywhere(got, right, suspects(own, right, samples))


def suspects(own, right, samples):
    p, n = len(samples), sum(samples)
    some = sum(count > 0 for count in samples)
    same = {
        f"this is the mean of the ranks' means: a rank with {many(min(samples), 'sample')} counts as much as "
        f"one with {max(samples)}. Weight each rank by its samples": times(combined(own, [1] * p), 1 / p),
        "this is the mean of the means of those ranks that have samples: weight each by how many": times(
            combined(own, [1] * p), 1 / some
        ),
        "this is the sum of the ranks' gradients, and not a mean": combined(own, [1] * p),
        f"this is the sum over all samples: divide it by their number, {n}": combined(own, samples),
        f"this is the sum over all samples, divided by the number of ranks, {p}: divide by that of samples, {n}": times(
            combined(own, samples), 1 / p
        ),
        f"it is {p} times too large, the number of ranks: the sum over samples needs no such factor": times(right, p),
        f"it is {p} times too small, the number of ranks: it is divided by samples and by ranks": times(right, 1 / p),
        f"it is {n} times too small, the number of samples: it is divided by it twice, once of that by backward": times(
            right, 1 / n
        ),
        f"this is the sum of the ranks' means, divided by the number of all samples, {n}: multiply each mean by its "
        "rank's samples first": times(combined(own, [1] * p), 1 / n),
        "each rank's mean is divided by its samples once more, before they are added: backward has done it; multiply": (
            combined(own, [1 / max(1, count) for count in samples])
        ),
    }
    each = {
        "these are still their own gradients: nothing was averaged": own,
        f"these are only their own shares, weighted by samples/{n}: nothing was added": [
            times(mine, count / n) for mine, count in zip(own, samples)
        ],
        "this is the sum over all samples, but each rank divides by the number of its own: divide by that of all": [
            times(combined(own, samples), 1 / max(1, count)) for count in samples
        ],
        "this is the sum of the ranks' means, and each rank divides it by the number of its own samples: multiply by "
        "them before, and divide by that of all": [
            times(combined(own, [1] * p), 1 / max(1, count)) for count in samples
        ],
    }
    return {words: [gradients] * p for words, gradients in same.items()} | each


def one_call(trial):
    calls = collectives(trial)
    others = sorted({call.name for call in calls} - {"all_reduce"})
    if others:
        raise Wrong(f"you call {' and '.join(others)}; one all-reduce is enough")
    nbytes = sum(call.nbytes for call in calls)
    if len(calls) != 1:
        per_tensor = ": one for each parameter pays as many latencies" if len(calls) >= len(SHAPES) else ""
        raise Wrong(
            f"there are {many(len(calls), 'all-reduce')}, where one is right{per_tensor}. Put all gradients in a row, "
            "and the number of samples at their end"
        )
    if nbytes != NBYTES + FLOAT:
        raise Wrong(
            f"the all-reduce has {nbytes:,} bytes, where {NBYTES + FLOAT} are right: {NBYTES} of gradients and one "
            "number, the samples"
        )


@exercise(
    chapter="05_data_parallel",
    title="Average gradients of unequal batches",
    minutes=15,
    difficulty=2,
    targets={
        "values": "the gradient of the mean over all ranks' samples, on every rank; 1, 2, 3, 4 and 8 ranks, 0 to 7 "
        "samples each",
        "calls": "one all-reduce, and gradients that follow what it gives",
        "bytes": "all gradients and one number: S + 4, of which a rank sends 2(p-1)/p",
    },
    hints=[
        "A mean of means is the mean only if all ranks have as many samples. What is the same for all samples: the "
        "sum over them. How do you get from a rank's mean to its sum?",
        "Multiply by samples, add up over the ranks, divide by the number of all samples. That number is a sum over "
        "the ranks, too, and may travel along.",
        "torch.cat flattened gradients and one more number, samples; all_reduce it; the last number of the result is "
        "the one to divide by.",
        "A rank without samples has grad None. It must take part nevertheless: give it torch.zeros_like(parameter) "
        "first. Afterwards flat[:-1].split([p.numel() for p in parameters]) are the parts to copy back.",
    ],
    why="The last batch of an epoch, sequences of different lengths, masked tokens: samples are seldom spread evenly, "
    "and a mean of means is then silently another loss. Large training libraries have had this bug for years.",
    check=properties,
)
def average_gradients(parameters, samples):
    """Leave on every rank, in ``parameter.grad``, the gradient of the mean loss over the samples of all ranks.

    Backward has run on the mean over this rank's ``samples``. A rank may have none: its gradients are None. One
    all-reduce carries everything.
    """
    parts = []
    for parameter in parameters:
        # What does this rank put in, so that the sum over the ranks is one over samples? And if it has none?
        raise NotImplementedError
    parts.append(torch.tensor([float(samples)]))  # the one number more: it is added up, too
    flat = torch.cat(parts)
    dist.all_reduce(flat)
    for parameter in parameters:
        # Which numbers of flat are this one's, and by what are they divided?
        raise NotImplementedError
