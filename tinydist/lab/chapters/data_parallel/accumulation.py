"""Several microbatches, one reduction: what no_sync is for."""

from functools import cache, partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from ....data_parallel import DDP
from ...collectives import collectives, waited
from ...errors import Wrong
from ...exercise import exercise
from ...memory import draw_memory
from ...messages import many
from ...own_work import Watched, calls_none_of
from ...ranks import Case, Trials
from ...verdict import Property
from .accumulation_mistakes import over_ranks, suspects
from .gradients import combined, right_everywhere
from .layers import build, gradients
from .own_work import TORCHS

STEPS, WIDTH, LAYERS = 2, 8, 3
LARGE = 64  # rows of a microbatch, where bytes held are judged
ROWS = [(1, (4,)), (1, (3, 1, 2, 4)), (2, (2, 2, 2, 2)), *((ranks, (3, 1, 2, 4)) for ranks in (3, 4))]


def deep(_, rank):
    return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)])


def microbatches(rank, step, rows):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return [tuple(torch.randn(2, each, WIDTH, generator=generator).unbind()) for each in rows]


def case(ranks, rows):
    about = f"microbatches of {', '.join(map(str, rows))} rows, {STEPS} steps"
    return Case(ranks, lambda rank: (build(deep, (), rank), rows), about, rows, kind=rows)


def train(answer, module, rows):
    """Gradients after each step."""
    ddp, found = DDP(module), []
    for step in range(STEPS):
        ddp.zero_grad()
        answer(ddp, microbatches(dist.get_rank(), step, rows))
        found.append(gradients(module))
    return found


def properties(answer):
    cases = [case(ranks, rows) for ranks, rows in [*ROWS, (1, (LARGE,) * 4)]]
    watched = Watched(answer)
    trials = Trials(partial(train, watched), cases, values)
    yield Property("own work", "the ddp that is given, and no other", trials.each(no_other(watched)))
    yield Property("runs", "it ends on 1, 2, 3 and 4 ranks without an error", trials.end)
    yield Property("waits", "whatever is started is waited for", trials.each(waited))
    yield Property("values", "the gradients of one large batch, in each step", trials.each(values))
    yield Property("reductions", "one in each step", trials.each(one_reduction))
    yield Property("memory", "activations of one microbatch at a time", trials.each(one_at_a_time, large))


def values(trial):
    if not large(trial.case):
        as_one_batch(trial)


REDUCE = ("all_reduce", "reduce_scatter")


def no_other(watched):
    """To make a ddp takes collectives that are no reductions: there are none once the first step has reduced."""
    not_torchs = calls_none_of(watched, TORCHS, "use the ddp that is given")

    def judge(trial):
        not_torchs(trial)
        for rank in range(trial.case.ranks) if trial.run else ():
            names = [call.name for call in collectives(trial, rank)]
            reductions = [place for place, name in enumerate(names) if name in REDUCE]
            others = sorted(set(names[reductions[0] :]) - set(REDUCE)) if reductions else []
            if others:
                raise Wrong(
                    f"rank {rank} calls {' and '.join(others)} after the first step, where only reductions are right: "
                    "is another ddp made? Use the one that is given"
                )

    return judge


def as_one_batch(trial):
    rows, before = trial.case.expected, None
    for step, got in enumerate(zip(*trial.returned)):
        each = [means_of(rank, step, rows) for rank in range(trial.case.ranks)]
        weights = [count / sum(rows) for count in rows]
        for rank, mine in enumerate(got):
            if all(gradient is None for gradient in mine.values()):
                raise Wrong(f"on rank {rank}, there are no gradients after step {step}: backward was never called")
        right = over_ranks([combined(means, weights) for means in each])
        try:
            right_everywhere(got, right, suspects(each, rows, WIDTH, right, before))
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


def one_reduction(trial):
    for rank in range(trial.case.ranks):
        calls = [call for call in collectives(trial, rank) if call.name in REDUCE]
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
