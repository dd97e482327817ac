"""Several microbatches, one reduction: what no_sync is for."""

from functools import cache, partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from ....data_parallel import DDP
from ...errors import Wrong
from ...exercise import exercise
from ...memory import draw_memory
from ...messages import many
from ...ranks import Case, Trials
from ...verdict import Property
from .gradients import combined, right_everywhere, times
from .layers import build, gradients
from .own_work import collectives, own_work, waited

STEPS, WIDTH, LAYERS = 2, 8, 3
LARGE = 64  # rows of a microbatch, where bytes held are judged
ROWS = [(1, (4,)), (1, (3, 1, 2, 4)), (2, (2, 2, 2, 2)), *((ranks, (3, 1, 2, 4)) for ranks in (2, 3, 4))]


def deep(_, rank):
    return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)])


def microbatches(rank, step, rows):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return [tuple(torch.randn(2, each, WIDTH, generator=generator).unbind()) for each in rows]


def case(ranks, rows):
    about = f"microbatches of {', '.join(map(str, rows))} rows, {STEPS} steps"
    return Case(ranks, lambda rank: (build(deep, (), rank), rows), about, expected=rows)


def train(answer, module, rows):
    """Gradients after each step."""
    ddp, found = DDP(module), []
    for step in range(STEPS):
        ddp.zero_grad()
        answer(ddp, microbatches(dist.get_rank(), step, rows))
        found.append(gradients(module))
    return found


def properties(answer):
    cases = [case(ranks, rows) for ranks, rows in [*ROWS, (2, (LARGE,) * 4)]]
    trials = Trials(partial(train, answer), cases)
    yield Property("own work", "the ddp that is given, and no other", own_work(answer, "use the ddp that is given"))
    yield Property("runs", "it ends on 1, 2, 3 and 4 ranks without an error", trials.end)
    yield Property("waits", "whatever is started is waited for", trials.each(waited))
    yield Property(
        "values",
        "the gradients of one large batch, in each step",
        trials.each(as_one_batch, lambda case: not large(case)),
    )
    yield Property("reductions", "one in each step", trials.each(one_reduction))
    yield Property("memory", "activations of one microbatch at a time", trials.each(one_at_a_time, large))


def as_one_batch(trial):
    rows, before = trial.case.expected, None
    for step, got in enumerate(zip(*trial.returned)):
        each = [means_of(rank, step, rows) for rank in range(trial.case.ranks)]
        weights = [count / sum(rows) for count in rows]
        right = over_ranks([combined(means, weights) for means in each])
        try:
            right_everywhere(got, right, suspects(each, rows, right, before))
        except Wrong as wrong:
            raise Wrong(f"in step {step}, {wrong}") from None
        before = right


@cache
def means_of(rank, step, rows):
    """The gradients of each microbatch's mean loss."""
    model, found = build(deep, (), rank), []
    for inputs, targets in microbatches(rank, step, rows):
        model.zero_grad()
        F.mse_loss(model(inputs), targets).backward()
        found.append(gradients(model))
    return found


def over_ranks(each):
    return times(combined(each, [1] * len(each)), 1 / len(each))


def suspects(each, rows, right, before):
    """``each``: by rank, the mean gradients of each microbatch."""
    p, count = len(each), len(rows)
    weights = [each / sum(rows) for each in rows]
    last = over_ranks([means[-1] for means in each])
    sums = over_ranks([combined(means, [1] * count) for means in each])
    uneven = f"a microbatch counts as much as another that has {max(rows) / min(rows):.3g} times its rows"
    same = {
        "these are the gradients of the last microbatch alone: who deleted the others?": last,
        "these are the gradients of the last microbatch alone, though weighted right: are the others deleted?": times(
            last, weights[-1]
        ),
        f"this is the sum of the {count} microbatches' means: each loss counts only for its part of the rows": sums,
        f"this is the mean of the microbatches' means: {uneven}. Weight each loss by its rows": times(sums, 1 / count),
        f"the gradients are {p} times too small, the number of ranks: ddp has divided already": times(right, 1 / p),
        f"the gradients are {count} times too small, the number of microbatches: divided twice": times(
            right, 1 / count
        ),
        f"the gradients are {p} times too large, the number of ranks: ddp takes the mean": times(right, p),
        f"the gradients are {sum(rows)} times too large, the number of rows: each loss counts for its part of them, "
        "a fraction": times(right, sum(rows)),
    }
    if before:
        same["these are the gradients of the step before"] = before
    first = over_ranks([means[0] for means in each])
    own = {
        "the first microbatch is reduced, and not the last: what is added later stays each rank's own": [
            combined([first, *means[1:]], weights) for means in each
        ],
        "each rank has gradients of its own: nothing was reduced. The last microbatch must be outside of no_sync": [
            combined(means, weights) for means in each
        ],
        "each rank has gradients of its own: nothing was reduced, and the microbatches' means are added up": [
            combined(means, [1] * count) for means in each
        ],
        "each rank has gradients of its own: nothing was reduced": [combined(m, [1 / count] * count) for m in each],
    }
    return {words: [value] * p for words, value in same.items()} | own


def one_reduction(trial):
    for rank in range(trial.case.ranks):
        calls = [call for call in collectives(trial, rank) if call.name in ("all_reduce", "reduce_scatter")]
        if len(calls) != STEPS:
            made = f"rank {rank} makes {many(len(calls), 'reduction')} in {STEPS} steps, where {STEPS} are right"
            each = len(calls) == STEPS * len(trial.case.expected)
            raise Wrong(made + (ONE_EACH if each else ""))


ONE_EACH = (
    ": one for each microbatch. All but the last belong in no_sync, and not only their backward: it is forward that "
    "notes whether to reduce"
)


# Bytes of activations: what each layer keeps for backward, and a result that is on its way.
ONE = (LAYERS + 1) * LARGE * WIDTH * 4


def large(case):
    return LARGE in case.expected


def one_at_a_time(trial):
    """As much as the activations of a microbatch once more is granted."""
    for rank, held in enumerate(activations(trial)):
        if held > 2 * ONE:
            raise Wrong(
                f"rank {rank} holds {held:,} bytes of activations, where those of one microbatch are {ONE:,}: its "
                "backward must come before the next one's forward, which is why batches are cut",
                draw_memory(trial, rank),
            )


def activations(trial):
    """Bytes at their peak, by rank, without the batch itself."""
    given = 2 * sum(trial.case.expected) * WIDTH * 4
    return [max(held["activations"] for _, held in memory.over_time()) - given for memory in trial.run.memory]


@exercise(
    chapter="05_data_parallel",
    title="Accumulate, and reduce once",
    minutes=15,
    difficulty=2,
    targets={
        "values": "the gradients of one batch of all rows of all ranks; 1 and 4 microbatches, of equal and of "
        "different sizes; 1, 2, 3 and 4 ranks",
        "reductions": "one in each step",
        "memory": "activations of one microbatch at a time",
    },
    hints=[
        "Gradients add up over several backwards by themselves. Which of the four backwards is the one that may "
        "reduce? Then all that has been added up travels at once.",
        "with ddp.no_sync(): encloses forward and backward of all microbatches but the last. It is forward that notes "
        "whether this backward will reduce.",
        "A mean over 1 row must not count as much as one over 3. The loss of the whole batch is the sum of each "
        "microbatch's mean times its part of the rows.",
        "(F.mse_loss(ddp(inputs), targets) * len(inputs) / rows).backward(): first for all of microbatches[:-1], in "
        "no_sync, then for microbatches[-1], outside of it.",
    ],
    why="Large batches are cut into microbatches so that activations fit. Without no_sync each of them pays for a "
    "reduction whose result nobody uses: with 4 of them, 4 times the bytes.",
    check=properties,
)
def accumulate(ddp, microbatches):
    """Leave in the gradients those of the mean squared error over all rows of all ``microbatches`` of all ranks.

    ``microbatches`` is a list of (inputs, targets); all ranks have as many rows. ``ddp`` is a model in
    DistributedDataParallel: in each step its gradients must be reduced only once.
    """
    rows = sum(len(inputs) for inputs, targets in microbatches)
    for inputs, targets in microbatches:
        # Which part of the batch is this, and is it the one that reduces?
        raise NotImplementedError
