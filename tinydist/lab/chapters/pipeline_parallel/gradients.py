"""Are a worker's gradients and its loss those of one process? If not: of which microbatch, or divided by what.

Gradients are there before the step, to which it should add.
"""

import torch

from ...errors import Wrong
from ...messages import many
from ...values import close, kind
from .watched_stage import alike, in_one_process

THERE = 0.5  # each gradient, before the step


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
            if text := what_was_there(weight.grad, expected, count):
                raise Wrong(f"on rank {rank}, {text}: a step adds to the gradients, as backward() does")
            added = weight.grad - THERE
            if not close(added, expected):
                ratio = float(added.norm() / expected.norm()) if alike(added, expected) else None
                raise Wrong(f"on rank {rank}, the gradients are wrong{by_what(ratio, p, count)}")


def what_was_there(gradient, added, microbatches):
    if alike(gradient, added):
        return "the gradients that were there before the step are lost"
    if close(gradient, THERE / microbatches + added):
        return f"the gradients that were there before the step are divided by {microbatches}, too"


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
    return f": {ratio:.3g} times what is right. Divide each microbatch's loss by M = {M}, once" if ratio else ""
