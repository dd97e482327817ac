"""A mean over the rows of all ranks, as in SyncBatchNorm, with the backward pass that the loss asks for."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Own, Values, Waits, as_many, exercise, mistake

from .chapter import DIFFERENTIABLE, leaf, noted, numbers, result_of

SUMMED = "                dist.all_reduce(gradient)\n"


def case(ranks, shared, *rows, features=4, summed=False, dtype=torch.float32):
    rows = [rows[rank % len(rows)] for rank in range(ranks)]
    about = f"{' + '.join(map(str, rows))} rows of {features} features, shared={shared}"
    about += ", the loss is the sum of the mean" * summed + ", float64" * (dtype == torch.float64)
    return Case(ranks, lambda rank: (rows[rank], features, shared, summed, dtype), about)


def test_cases():
    both = (False, True)
    yield from (case(2, shared, 3, 2) for shared in both)
    yield from (case(3, shared, 4, 1, 2, features=3) for shared in both)
    yield from (case(4, shared, 0, 5, 2, 2, features=5, dtype=torch.float64) for shared in both)
    yield from (case(8, shared, 1, 2) for shared in both)
    yield from (case(1, shared, 3) for shared in both)
    yield from (case(3, shared, 2, summed=True) for shared in both)


def train(answer, rows, features, shared, summed, dtype):
    """The loss uses the mean, and if it is each rank's own, numbers that the other ranks do not have. What is added to
    the mean gets the same tensor as its gradient, after the mean: whoever adds up in it, changes both. The gradient
    of a sum is one number, seen as many."""
    rank = dist.get_rank()
    x, bias = leaf(numbers(rank, (rows, features), dtype)), leaf(numbers(50, (features,), dtype))
    offset = bias * 1
    mean = result_of(answer, x, shared, [features])
    weight = numbers(100 if shared else 100 + rank, (features,), dtype)
    loss = mean.sum() if summed else torch.tanh((mean + offset) * weight).sum()
    loss.backward()
    found = {"the mean": noted(mean), "the gradient of x": noted(x.grad)}
    return found if summed else found | {"the gradient of a tensor that was added to the mean": noted(bias.grad)}


def of_none(trial, got, want, own, pick):
    """NaN, where a rank has no rows."""
    rows = [trial.case.arguments(rank)[0] for rank in range(trial.case.ranks)]
    if 0 in rows and not all(each.isfinite().all() for each in got):
        return (
            f"Rank {rows.index(0)} has no rows, and the mean of none is 0/0, which is NaN, also times 0: add up sums "
            "and counts, and divide by the number of all rows alone"
        )
    return None


def counts(trial):
    rows = [trial.case.arguments(rank)[0] for rank in range(trial.case.ranks)]
    yield sum(rows), "rows on all ranks: is it divided by their number?"
    yield (
        sum(rows) / len(rows),
        "rows on a rank, on average: is it divided by the number of ranks, and not by that of rows?",
    )


@exercise(
    title="A mean over all ranks, and its backward",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    program=train,
    check_communication=False,  # sums and count may travel in one call or in two, and a count alone is not perturbed
    targets=[
        Own(*DIFFERENTIABLE),
        Waits("each call is waited for"),
        Values(
            "the mean, and the gradient of each rank's rows, on 1, 2, 3, 4 and 8 ranks; float32 and float64",
            explain=[of_none, as_many(counts)],
        ),
        Bytes(
            "forward one all-reduce of features + 1 numbers, the sums and a count; backward one of features numbers, "
            "and none if the loss is shared"
        ),
    ],
    mistakes=[
        mistake(
            "This is the mean of the means: ranks have different numbers of rows, so add up the rows and their count",
            "torch.cat([x.sum(0), x.new_tensor([len(x)])])",
            "torch.cat([x.sum(0) / max(1, len(x)), x.new_ones(1)])",
        ),
        mistake(
            "Each rank has a loss of its own, and all of them use your rows: add up the gradients of all ranks",
            "        if not ctx.shared:",
            "        if False:",
        ),
        mistake(
            "shared=True is one loss of which each rank has a copy: added up over the ranks, it counts p times",
            "        if not ctx.shared:",
            "        if True:",
        ),
        mistake(
            "A row counts as one of the rows of all ranks: in backward, too, divide by their number, and not by yours",
            "gradient / ctx.count",
            "gradient / max(1, ctx.rows)",
        ),
        mistake(
            "A row counts as one of the rows of all ranks: divide by their number, which is the same on all, and not "
            "each gradient by its rank's own before they are added up",
            "gradient = gradient.clone()",
            "gradient = gradient / max(1, ctx.rows)",
            "gradient / ctx.count",
            "gradient",
        ),
        mistake(
            "dist.all_reduce overwrites its tensor, and the gradient that backward is given is not yours alone: "
            "another branch of the loss has the same one. Add up in a clone",
            "gradient = gradient.clone()",
            "pass",
        ),
        mistake(
            "The backward of a mean divides as its forward does: by the number of all rows",
            "gradient / ctx.count",
            "gradient",
        ),
        mistake(
            "The sum of all losses is asked for, and not their mean: don't divide by the number of ranks",
            SUMMED,
            SUMMED + "                gradient /= dist.get_world_size()\n",
        ),
    ],
    hints=[
        "Which two things must be added up over all ranks, so that each can compute the mean of all rows? They fit "
        "into one all-reduce.",
        "Forward is a sum over all ranks, and a division. Backward is the partner of the sum, and the same division. "
        "Which collective is the partner of an all-reduce, and when is it the identity?",
        "If shared, each rank's gradient of the mean is already that of the loss: divide it by the number of all rows, "
        "and each of your rows gets it. If not, add the gradients of all ranks up first.",
    ],
    why="This is the heart of SyncBatchNorm, whose backward has an all-reduce of its own. Whether backward must add up "
    "is not a property of the forward pass: it depends on how many losses there are. Tensor parallelism has one, data "
    "parallelism as many as ranks.",
)
def mean_of_all(x, shared):
    """Return the mean over the rows of all ranks, [features]; ``x`` is [rows, features], and ranks have different
    numbers of rows, some none.

    In backward the gradient of ``x`` is that of the sum of all ranks' losses; or, if ``shared``, that of the one loss
    that all ranks compute alike.
    """

    class Mean(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            # ? Add up over all ranks, and divide. Keep in ctx what backward needs.
            both = torch.cat([x.sum(0), x.new_tensor([len(x)])])
            dist.all_reduce(both)
            ctx.rows, ctx.count, ctx.shared = len(x), both[-1].item(), shared
            return both[:-1] / ctx.count

        @staticmethod
        def backward(ctx, gradient):
            # ? From the gradient of the mean to that of this rank's rows
            gradient = gradient.clone()
            if not ctx.shared:
                dist.all_reduce(gradient)
            # .
            return (gradient / ctx.count).expand(ctx.rows, -1)

    return Mean.apply(x)
