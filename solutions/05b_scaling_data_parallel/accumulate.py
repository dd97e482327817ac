"""Several microbatches, one reduction: what no_sync is for."""

from itertools import dropwhile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from tinydist.data_parallel import DDP
from tinydist.lab.author import Case, Collectives, Memory, Own, Values, Waits, Wrong, also, as_many, exercise, mistake

from .chapter import TORCHS, build, gradients

STEPS, WIDTH, LAYERS = 2, 8, 3
LARGE = 64  # rows of a microbatch, where bytes held are judged
ONE = (LAYERS + 1) * LARGE * WIDTH * 4  # bytes of its activations: what each layer keeps, and a result on its way


def deep():
    return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)])


def case(ranks, *rows, measured=False):
    """``rows``: of the microbatches, on rank 0 and on the others."""
    about = f"microbatches of {' or '.join(', '.join(map(str, each)) for each in rows)} rows, {STEPS} steps"
    return Case(ranks, lambda rank: (build(deep), rows[min(rank, len(rows) - 1)]), about, measured)


def test_cases():
    for ranks, *rows in [
        (2, (3, 1, 2, 4)),
        (2, (4,)),
        (3, (2, 2, 2)),
        (4, (5, 1, 2, 6), (2, 6, 5, 1)),
        (1, (3, 1, 2, 4)),
    ]:
        yield case(ranks, *rows)
    yield case(2, (LARGE,) * 4, measured=True)


def train(answer, module, rows):
    """Gradients after each step."""
    ddp, found = DDP(module), {}
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
        ddp.zero_grad()
        answer(ddp, [tuple(torch.randn(2, each, WIDTH, generator=generator).unbind()) for each in rows])
        found[f"step {step}"] = gradients(module)
        if all(each is None for each in found[f"step {step}"].values()):
            raise Wrong(f"on rank {dist.get_rank()}, there are no gradients after step {step}: was backward called?")
    return found


def counts(trial):
    rows = trial.case.arguments(0)[1]
    yield WIDTH, "numbers in a row of the outputs: mse_loss is a mean over rows and over these"
    yield sum(rows), "rows in the step: is each loss weighted by its part of them?"
    yield sum(rows) / max(rows), "times the rows of the largest microbatch in all rows: divide by these"
    yield sum(rows) / len(rows), "rows in a microbatch, on average"


class Reductions(Collectives):
    """What making the ddp takes does not count."""

    def seen(self, trial):
        calls = super().seen(trial)
        return calls and [list(dropwhile(lambda call: call[0] != "all_reduce", each)) for each in calls]


WEIGHT = " * len(inputs) / rows"
STEP = f"(F.mse_loss(ddp(inputs), targets){WEIGHT}).backward()"
MOST, LAST = "microbatches[:-1]", "microbatches[-1:]"
ALONE = "Each rank has gradients of its own: nothing was reduced. The last microbatch must be outside of no_sync"


@exercise(
    title="Accumulate, and reduce once",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    program=train,
    targets=[
        Own("the ddp that is given, and no other", "use the ddp that is given", TORCHS),
        Waits("whatever is started is waited for"),
        Values(
            "the gradients of one batch of all rows of all ranks; 1, 3 and 4 microbatches, of equal and of different "
            "sizes; 1, 2, 3 and 4 ranks",
            scratch=True,
            explain=[as_many(counts)],
        ),
        Reductions("one in each step", "one in each step", name="reductions"),
        Memory("activations of one microbatch at a time: its backward comes before the next one's forward", slack=ONE),
    ],
    mistakes=[
        mistake(
            "Each microbatch is reduced: all but the last belong in no_sync, and not only their backward: it is "
            "forward that notes whether to reduce",
            "with ddp.no_sync():",
            "if True:",
        ),
        mistake(ALONE, MOST, "microbatches", LAST, "[]"),
        mistake(
            "The first microbatch is reduced, and not the last: what is added later stays each rank's own",
            "    with ddp.no_sync():",
            f"    inputs, targets = microbatches[0]\n    {STEP}\n    with ddp.no_sync():",
            MOST,
            "microbatches[1:]",
            LAST,
            "[]",
        ),
        mistake(
            "These are the gradients of the last microbatch alone, though weighted right: are the others deleted?",
            MOST,
            "[]",
        ),
        mistake(
            "This is the sum of the microbatches' means: each loss counts only for its part of the rows", WEIGHT, ""
        ),
        mistake(
            "This is the mean of the microbatches' means: one of few rows counts as much as one of many. Weight each "
            "loss by its rows",
            WEIGHT,
            " / len(microbatches)",
        ),
        mistake(
            "It is divided by the number of microbatches, too: divided twice", WEIGHT, WEIGHT + " / len(microbatches)"
        ),
        mistake(
            "It is divided by the number of ranks: ddp has divided already", WEIGHT, WEIGHT + " / dist.get_world_size()"
        ),
    ],
    alternatives=[  # the ranks' gradients are averaged by hand, in the order of the parameters
        also(
            MOST,
            "microbatches",
            f"    for inputs, targets in {LAST}:\n        {STEP}",
            """    mean = torch.cat([each.grad.flatten() for each in ddp.parameters()])
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    for each, part in zip(ddp.parameters(), mean.split([each.numel() for each in ddp.parameters()])):
        each.grad.copy_(part.view_as(each))""",
        )
    ],
    hints=[
        "Gradients add up over several backwards by themselves. Which of the four backwards is the one that may "
        "reduce? Then all that has been added up travels at once.",
        "with ddp.no_sync(): encloses forward and backward of all microbatches but the last. It is forward that notes "
        "whether this backward will reduce.",
        "A mean over 1 row must not count as much as one over 3. The loss of the whole batch is the sum of each "
        "microbatch's mean times its part of the rows.",
        "Each loss is F.mse_loss(ddp(inputs), targets) * len(inputs) / rows: first of all microbatches[:-1], in "
        "no_sync, then of microbatches[-1], outside of it.",
    ],
    why="Large batches are cut into microbatches so that activations fit. Without no_sync each of them pays for a "
    "reduction whose result nobody uses: with 4 of them, 4 times the bytes.",
)
def accumulate(ddp, microbatches):
    """Leave in the gradients those of the mean squared error over all rows of all ``microbatches`` of all ranks.

    ``microbatches`` is a list of (inputs, targets); all ranks have as many rows. ``ddp`` is a model in
    DistributedDataParallel, in fp32: in each step its gradients must be reduced only once.
    """
    rows = sum(len(inputs) for inputs, targets in microbatches)
    # -
    with ddp.no_sync():
        for inputs, targets in microbatches[:-1]:
            (F.mse_loss(ddp(inputs), targets) * len(inputs) / rows).backward()
    # .
    for inputs, targets in microbatches[-1:]:  # = for inputs, targets in microbatches:
        # ? Which part of the batch is this, and is it the one that reduces?
        (F.mse_loss(ddp(inputs), targets) * len(inputs) / rows).backward()
