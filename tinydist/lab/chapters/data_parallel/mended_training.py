"""A training loop with four bugs, which all run on one rank and show in no error but one."""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F

from ...collectives import collectives, waited
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched
from ...ranks import Case, Trials
from ...values import close
from ...verdict import Property
from .gradients import right_everywhere
from .own_work import HOLDS, own_work
from .watched_training import EPOCHS, SAMPLES, arguments, in_one_process, new_model, order_of, samples, state


def properties(answer):
    about = f"{SAMPLES} samples, {EPOCHS} epochs"
    watched = Watched(answer)
    trials = Trials(watched, [Case(ranks, arguments, about) for ranks in (1, 2, 3, 4)], weights)
    yield Property("own work", HOLDS, trials.each(own_work(watched)))
    yield Property("runs", "it ends on 1, 2, 3 and 4 ranks", partial(trials.end, ALL_OR_NONE))
    yield Property("waits", "whatever is started is waited for", trials.each(waited))
    yield Property("parameters", "all ranks begin with those of rank 0", trials.each(begin_alike("parameters")))
    yield Property("buffers", "all ranks begin with those of rank 0", trials.each(begin_alike("buffers")))
    yield Property("epochs", "each epoch has an order of its own", trials.each(orders))
    yield Property("values", "every rank has the weights of one process", trials.each(weights))
    yield Property("loss", "every rank returns the mean loss of the last batches", trials.each(loss))
    yield Property("bytes", "the state once, and the gradients in each step", trials.each(nbytes))


ALL_OR_NONE = "A collective ends when all ranks have called it: it cannot stand in a branch that only some ranks take."


def begin_alike(kind):
    """``kind``: parameters or buffers."""

    def judge(trial):
        models = [model for model, *_ in trial.arguments]
        if any(model.start is None for model in models):
            raise Wrong("the model is never called")
        own = [new_model(rank).state_dict() for rank in range(len(models))]
        for name, _ in getattr(models[0], f"named_{kind}")():
            starts = [model.start[name] for model in models]
            wrong = [rank for rank, start in enumerate(starts) if not close(start, own[0][name])]
            if wrong == list(range(len(models))):
                raise Wrong(
                    f"no rank begins with rank 0's {name}, not even rank 0: the {kind} of rank 0 are to be kept"
                )
            if wrong:
                its_own = "its own" if close(starts[wrong[0]], own[wrong[0]][name]) else "another"
                raise Wrong(f"rank {wrong[0]} begins with {its_own} {name}, where rank 0's is right. {WHY[kind]}")

    return judge


WHY = {
    "parameters": "All ranks add the same gradients, but to different numbers, and stay apart: broadcast the "
    "parameters before the first step",
    "buffers": "A buffer is no parameter, gets no gradient, and model.parameters() does not have it; but forward uses "
    "it: broadcast model.buffers(), too",
}


def orders(trial):
    p, (inputs, _) = trial.case.ranks, samples()
    for rank, (model, *_) in enumerate(trial.arguments):
        seen = [int((inputs == row).all(1).nonzero()) for row in torch.cat(model.seen)]
        first, *later = (order_of(rank, p, epoch) for epoch in range(EPOCHS))
        if seen == first * EPOCHS:
            raise Wrong(
                f"rank {rank} sees the samples {first} in epoch 0, and in epoch 1 the same ones in the same order. The "
                "sampler shuffles by the number of the epoch, and nobody tells it: sampler.set_epoch"
            )
        if seen != sum(later, first):
            raise Wrong(f"rank {rank} sees the samples {seen}, where {sum(later, first)} are right")


def weights(trial):
    p, got = trial.case.ranks, [state(model) for model, *_ in trial.arguments]
    suspects = {
        "each rank has trained on its own batches: gradients were not averaged": [
            in_one_process(p, only=rank)[0] for rank in range(p)
        ],
        f"steps were {p} times too long: gradients were added up, and not averaged": [in_one_process(p, factor=p)[0]]
        * p,
    }
    right_everywhere(got, in_one_process(p)[0], suspects, what="")


def loss(trial):
    p, (_, own) = trial.case.ranks, in_one_process(trial.case.ranks)
    right = sum(own) / p
    for rank, value in enumerate(trial.returned):
        if not isinstance(value, float):
            raise Wrong(f"rank {rank} returned {value!r}, where it should return the mean loss, a float")
        if not close(torch.tensor(value), torch.tensor(right)):
            raise Wrong(
                f"rank {rank} returns {value:.4f}, where the mean of all {p} ranks' last losses is {right:.4f}"
                f"{why(value, own[rank], right, p)}"
            )


def why(value, own, right, p):
    suspects = {
        f": this is {p} times as much. Divide the sum by {p}": right * p,
        f": this is {p} times too small, divided twice": right / p,
        ": this is its own loss. All ranks must take part in the sum, and all divide": own,
        f": this is its own loss / {p}. Nobody has added them up: all ranks must take part in the all-reduce": own / p,
    }
    for words, loss in suspects.items():
        if p > 1 and close(torch.tensor(value), torch.tensor(loss)):
            return words
    return "" if p == 1 else ". All ranks must take part in it, and all divide"


def nbytes(trial):
    """As much as the state once more is granted."""
    model, loader, _ = trial.arguments[0]
    whole = sum(tensor.nbytes for tensor in state(model).values())
    each = sum(parameter.nbytes for parameter in model.parameters())
    steps = EPOCHS * len(loader)
    reduced = sum(call.nbytes for call in collectives(trial))
    if trial.case.ranks > 1 and reduced < whole + steps * each:
        raise Wrong(
            f"the collectives have {reduced:,} bytes, where the state at the start has {whole:,}, and the gradients of "
            f"{steps} steps {each:,} each. Ranks of a real cluster share no memory: whatever one knows of another has "
            "to come in a message"
        )
    if reduced > 2 * whole + steps * each:
        raise Wrong(
            f"the collectives have {reduced:,} bytes, where {whole:,} for the state at the start and {steps} times "
            f"{each:,} for the gradients are enough. What begins alike, and adds the same gradients, stays alike"
        )


@exercise(
    chapter="05_data_parallel",
    title="Find four bugs",
    minutes=20,
    difficulty=3,
    targets={
        "runs": "no rank waits for ever; 1, 2, 3 and 4 ranks",
        "start": "all ranks begin with rank 0's parameters and buffers",
        "epochs": "each epoch has the samples in another order",
        "values": "weights as in one process, on every rank; each returns the mean of all ranks' last losses",
        "bytes": "the state is sent once, the gradients in each step",
    },
    hints=[
        "Run check and read the report of the deadlock: which rank waits, in which line, and what have the others "
        "done? Mend that, and the check will show the next one.",
        "What must be equal on all ranks, so that equal gradients keep it equal? Ranks are born with different "
        "numbers.",
        "model.parameters() and model.buffers(), both: what forward reads and no gradient changes is a buffer. "
        "dist.broadcast(tensor, 0) before the first step; parameters need torch.no_grad() or .data.",
        "A DistributedSampler shuffles with seed + epoch. loader.sampler.set_epoch(epoch) belongs at the start of "
        "each epoch.",
    ],
    why="Three of these four show in no error: training runs, the loss falls, and the model is worse than it should "
    "be. DistributedDataParallel does the broadcasts for you, but set_epoch is yours to call, and so is every "
    "collective that you write behind an if.",
    check=properties,
)
def mended_training(model, loader, epochs):
    """Mend this data parallel training: it has four bugs.

    All ranks should end with the weights that one process gets from the batches of all, beginning with rank 0's
    model; and each should return the mean of all ranks' losses in the last step.
    """
    p = dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(inputs), targets)
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= p
            optimizer.step()
    mean = loss.detach()
    if dist.get_rank() == 0:  # for the log
        dist.all_reduce(mean)
    return mean.item() / p
