"""A training loop with four bugs, which all run on one rank and show in no error but one."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tinydist.lab.author import Case, Collectives, Own, Part, Waits, Wrong, also, exercise, mistake
from tinydist.lab.differences import close

from .chapter import SOLVED, build

BATCH = 2


class Scale(nn.Module):
    """Multiplies by a buffer, and adds one of a single number."""

    def __init__(self, rank):
        super().__init__()
        self.register_buffer("scale", torch.tensor([1.0, 0.5, 2.0]) + rank)
        self.register_buffer("shift", torch.tensor(0.1 * rank))

    def forward(self, x):
        return x * self.scale + self.shift


class Model(nn.Sequential):
    """Ranks begin with different numbers. Notes those with which it is first used, and all inputs."""

    def __init__(self, _, rank):
        torch.manual_seed(rank)
        super().__init__(Scale(rank), nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        self.start, self.seen = None, []

    def forward(self, x):
        self.start = self.start or numbers(self)
        self.seen.append(x.clone())
        return super().forward(x)


def numbers(model):
    pairs = model.named_parameters(), model.named_buffers()
    return [{name: tensor.detach().clone() for name, tensor in each} for each in pairs]


def case(ranks, samples=10, epochs=3):
    def arguments(rank):
        generator = torch.Generator().manual_seed(1)
        dataset = TensorDataset(*(torch.randn(samples, width, generator=generator) for width in (3, 1)))
        sampler = DistributedSampler(dataset, ranks, rank)
        return build(Model, (), rank), DataLoader(dataset, BATCH, sampler=sampler), epochs

    return Case(ranks, arguments, f"{samples} samples, {epochs} epochs")


def test_cases():
    return [*map(case, (2, 3, 4)), case(2, 7, 2), case(2, 60, 2), case(1)]  # 30 steps: a number in each stands out


def train(answer, model, loader, epochs):
    """Which numbers it begins with, the samples that it sees, and what it ends with."""
    rank, loss = dist.get_rank(), answer(model, loader, epochs)
    if model.start is None:
        raise Wrong(f"on rank {rank} the model is never called")
    if not isinstance(loss, float):
        raise Wrong(f"rank {rank} returned {loss!r}, where it should return the mean loss, a float")
    (parameters, buffers), (trained, _) = model.start, numbers(model)
    order = (torch.cat(model.seen)[:, None] == loader.dataset.tensors[0]).all(2).nonzero()[:, 1]
    return {
        "the parameters at the start": parameters,
        "the buffers at the start": buffers,
        "the samples in their order": order,
        "the parameters at the end": trained,
        "the loss": torch.tensor(loss),
    }


def one_epoch_more(trial, got, want, own, pick):
    for rank, mine in enumerate(got):
        _, loader, epochs = trial.case.arguments(rank)
        order = []
        for epoch in range(epochs):
            loader.sampler.set_epoch(epoch + 1)
            order += loader.sampler
        if mine.tolist() != order:
            return one_order(trial, got)
    return "These are the samples of epochs 1, 2 and so on. Epochs count from 0, as range counts"


def one_order(trial, got):
    for number in range(4):
        orders = []
        for _, loader, epochs in map(trial.case.arguments, range(trial.case.ranks)):
            loader.sampler.set_epoch(number)
            orders.append(list(loader.sampler) * epochs)
        if all(mine.tolist() == order for mine, order in zip(got, orders)):
            return f"All epochs have the order of epoch {number}: the sampler is to be told the number of each"
    return None


def one_process(trial, rate=0.1, divisor=1.0, zero=True, first=0):
    """The weights and losses of one process that has all ranks' batches, and does something otherwise."""
    given = [trial.case.arguments(rank) for rank in range(trial.case.ranks)]
    model, p, losses = given[0][0], len(given), []
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for epoch in range(given[0][2]):
        for _, loader, _ in given:
            loader.sampler.set_epoch(epoch + first)
        losses.append([])
        for batches in zip(*(loader for _, loader, _ in given)):
            if zero:
                optimizer.zero_grad()
            each = [F.mse_loss(model(inputs), targets) for inputs, targets in batches]
            (sum(each) / p / divisor).backward()
            optimizer.step()
            losses[-1].append(torch.stack(each).detach())
    return dict(model.named_parameters()), losses


def begun_elsewhere(trial, got, want, own, pick):
    """Whose numbers these are."""
    models = [trial.case.arguments(rank)[0] for rank in range(trial.case.ranks)]
    names = [name for name, each in models[0].state_dict().items() if close(each, want[0])]
    for name in names:
        all_of_it = [model.state_dict()[name] for model in models]
        if all(close(mine, sum(all_of_it) / len(models)) for mine in got):
            return "These are the means of what the ranks begin with. All take what rank 0 has"
        for rank, each in enumerate(all_of_it):
            if rank and all(close(mine, each) for mine in got):
                return f"All begin with what rank {rank} has, where it should be what rank 0 has"
    return None


def trained_otherwise(trial, got, want, own, pick):
    p = trial.case.ranks
    ways = {
        "The gradients of earlier steps are still there: zero_grad before each backward": dict(zero=False),
        f"Steps are {p} times as long: the gradients are the sum over the ranks, or the rate is larger": dict(
            rate=0.1 * p
        ),
        f"Steps are {p} times too short: the mean over the ranks is divided by their number twice": dict(divisor=p),
        f"The sum over the ranks is divided by 2, and there are {p}": dict(divisor=2 / p),
    }
    for words, how in ways.items():
        for each in one_process(trial, **how)[0].values():
            if each.shape == want[0].shape and all(close(mine, each.detach()) for mine in got):
                return words
    return None


def another_loss(trial, got, want, own, pick):
    _, losses = one_process(trial)
    ends, whole = torch.stack(losses[-1]), torch.cat([torch.stack(each) for each in losses])
    ways = {
        "It is the mean over all steps of the last epoch, where the loss of the last step is asked for": ends.mean(),
        "It is the sum over the steps of the last epoch, where the loss of the last step is asked for": ends.mean(
            1
        ).sum(),
        "It is the mean over all steps, where the loss of the last step is asked for": whole.mean(),
        "It is the loss of the first step, where that of the last one is asked for": whole[0].mean(),
        "It is the first loss of the last epoch, where that of the last step is asked for": ends[0].mean(),
        "It is the last loss of the first epoch, where that of the last one is asked for": losses[0][-1].mean(),
        "It is divided by the number of steps as well": ends[-1].mean() / len(ends),
        "It is divided by the number of epochs as well": ends[-1].mean() / len(losses),
        "It is the largest of the ranks' losses, where their mean is asked for": ends[-1].max(),
        "It is the smallest of the ranks' losses, where their mean is asked for": ends[-1].min(),
    }
    ways |= {
        f"It is rank {rank}'s loss, where the mean of all is asked for": each for rank, each in enumerate(ends[-1])
    }
    return next((words for words, each in ways.items() if all(close(mine, each) for mine in got)), None)


class StateAndGradients(Collectives):
    """As many bytes as the reference has, and at most as much as the state once more."""

    def judge(self, exercise, trial, right):
        mine, its = (sum(nbytes for _, nbytes in self.seen(each)[0]) for each in (trial, right))
        whole = sum(each.nbytes for each in trial.arguments[0][0].state_dict().values())
        if mine < its - LOSS and trial.case.ranks > 1:
            raise Wrong(
                f"the collectives have {mine:,} bytes, where the state at the start and the gradients of all steps "
                f"have {its - LOSS:,}. Ranks of a real cluster share no memory: whatever one knows of another has to "
                "come in a message"
            )
        if mine > its + whole:
            raise Wrong(
                f"the collectives have {mine:,} bytes, where {its:,} are enough: {whole:,} for the state at the start, "
                "the gradients of each step, and the loss of the last. What begins alike, and adds the same gradients, "
                "stays alike"
            )


LOSS = 4  # bytes; it may come in another way
SUMMED = "dist.all_reduce(parameter.grad)\n                parameter.grad /= p"
EACH = f"            for parameter in model.parameters():\n                {SUMMED}"
SET = "        loader.sampler.set_epoch(epoch)\n"
LOGGED = "    dist.all_reduce(mean)  # on every rank; a rank may print alone, but not communicate alone\n"


@exercise(
    title="Find four bugs",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    program=train,
    targets=[
        Own("neither tinydist.data_parallel nor torch's DDP", "use the collectives of torch.distributed", SOLVED),
        Waits("whatever is started is waited for"),
        Part(
            "parameters",
            "the parameters at the start",
            "all ranks begin with those of rank 0",
            explain=[begun_elsewhere],
            scratch=True,
        ),
        Part("buffers", "the buffers at the start", "all ranks begin with those of rank 0", scratch=True),
        Part(
            "epochs",
            "the samples",
            "each epoch has the samples in another order",
            explain=[one_epoch_more],
            scratch=True,
        ),
        Part(
            "values",
            "at the end",
            "weights as in one process, on every rank; 1, 2, 3 and 4 ranks",
            explain=[trained_otherwise],
            scratch=True,
        ),
        Part(
            "loss",
            "the loss",
            "each rank returns the mean of all ranks' last losses",
            explain=[another_loss],
            scratch=True,
        ),
        StateAndGradients("the state is sent once, the gradients in each step", name="bytes"),
    ],
    mistakes=[
        mistake(
            "A collective ends when all ranks have called it: it cannot stand in a branch that only some ranks take",
            LOGGED,
            "    if dist.get_rank() == 0:  # for the log\n        dist.all_reduce(mean)\n",
            given=True,
        ),
        mistake(
            "All ranks add the same gradients, but to different numbers, and stay apart: broadcast the parameters "
            "before the first step",
            "*model.parameters(), ",
            "",
        ),
        mistake(
            "A buffer is no parameter, gets no gradient, and model.parameters() does not have it; but forward uses it: "
            "broadcast model.buffers(), too",
            "*model.buffers()",
            "",
        ),
        mistake(
            "All epochs have the samples in the same order. The sampler shuffles by the number of the epoch, and "
            "nobody tells it: sampler.set_epoch",
            SET,
            "",
        ),
        mistake(
            "The sampler is told the number of the epoch too late: it shuffles when the loop over the loader begins",
            SET,
            "",
            "            optimizer.step()\n",
            "            optimizer.step()\n" + SET,
        ),
        mistake(
            "Steps are too long by the number of ranks: gradients are added up, and not averaged (or lr is larger)",
            "parameter.grad /= p",
            "pass",
        ),
        mistake("Each rank trains on its own batches: gradients are not averaged", SUMMED, "pass"),
        mistake(
            "This is its own loss. All ranks must take part in the sum, and all divide",
            LOGGED,
            "",
            "mean.item() / p",
            "mean.item()",
        ),
    ],
    alternatives=[  # all gradients in one all-reduce
        also(
            EACH,
            """            flat = torch.cat([each.grad.flatten() for each in model.parameters()])
            dist.all_reduce(flat)
            for each, part in zip(model.parameters(), flat.split([each.numel() for each in model.parameters()])):
                each.grad.copy_(part.view_as(each) / p)""",
        ),
        also(  # each takes its own step, and the weights are averaged, which for SGD is the same
            EACH + "\n            optimizer.step()\n",
            """            optimizer.step()
            with torch.no_grad():
                for parameter in model.parameters():
                    dist.all_reduce(parameter)
                    parameter /= p
""",
        ),
    ],
    hints=[
        "Run check and read the report of the deadlock: which rank waits, in which line, and what have the others "
        "done? Mend that, and the check will show the next one.",
        "What must be equal on all ranks, so that equal gradients keep it equal? Ranks are born with different "
        "numbers.",
        "model.parameters() and model.buffers(), both: what forward reads and no gradient changes is a buffer. "
        "dist.broadcast(tensor, 0) before the first step; parameters need torch.no_grad() or .data.",
        "A DistributedSampler shuffles with seed + epoch. Who tells it the epoch, and when? Before the loop over the "
        "loader begins: sampler.set_epoch.",
    ],
    why="Three of these four show in no error: training runs, the loss falls, and the model is worse than it should "
    "be. DistributedDataParallel does the broadcasts for you, but set_epoch is yours to call, and so is every "
    "collective that you write behind an if.",
)
def mended_training(model, loader, epochs):
    """Mend this data parallel training: it has four bugs.

    All ranks should end with the weights that one process gets from the batches of all, beginning with rank 0's
    model; and each should return the mean of all ranks' losses in the last step. Epochs count from 0. All numbers are
    in fp32, but for the loss that is returned, a float.
    """
    p = dist.get_world_size()
    # -
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            dist.broadcast(tensor, 0)
    # .
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        # -
        loader.sampler.set_epoch(epoch)
        # .
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(inputs), targets)
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= p
            optimizer.step()
    mean = loss.detach()
    dist.all_reduce(mean)  # on every rank; a rank may print alone, but not communicate alone
    return mean.item() / p
