"""A script for one GPU becomes one for torchrun, and trains the same weights on any number of processes."""

import os
import re
from dataclasses import replace

import torch
import torch.distributed as dist

from tinydist.hardware import default_cluster
from tinydist.lab.author import Case, Target, Values, Wrong, exercise, mistake

BEGIN = '    dist.init_process_group("gloo")\n'
OWN = "    torch.manual_seed(7 + rank)\n"
SUM = "            for parameter in model.parameters():\n                dist.all_reduce(parameter.grad)\n"
TOLD = "        dist.all_reduce(told)\n"
SAVE = "            save(epoch, model.weight.detach())\n"
ALL_SAVE = "        save(epoch, model.weight.detach())\n"
END = "    dist.destroy_process_group()\n"


def world(ranks, rows=12, size=4, epochs=2, dtype=torch.float32, per_node=8):
    def arguments(rank):
        numbers = torch.Generator().manual_seed(rows)
        x, targets = (torch.randn(*shape, generator=numbers, dtype=dtype) for shape in ((rows, 3), (rows, 1)))
        return x, targets, epochs, size

    about = f"{rows} rows, batches of {size}" + ", float64" * (dtype == torch.float64)
    about += f", nodes of {per_node} GPUs" * (per_node < ranks)
    nodes = replace(default_cluster(9), devices_per_node=per_node)
    return Case(ranks, arguments, about, how={"cluster": nodes})


def worlds():
    yield world(2)
    yield world(2, 11, 6)
    yield world(3, 14, 6, 3)
    yield world(4, 13, 4, 2, torch.float64, per_node=2)
    yield world(1)


def program(answer, x, targets, epochs, size):
    """What the script does besides training is taken down by the functions that it is given."""
    dist.destroy_process_group()  # torchrun makes none
    rank, ranks = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    gpus, drawn, rows, saved = [], [], [], []

    def augment(rows_of_batch):
        drawn.append(torch.rand(3))
        rows.append(len(rows_of_batch))
        return rows_of_batch.clone()

    weight = answer(
        x,
        targets,
        epochs,
        size,
        gpus.append,
        augment,
        lambda epoch, weight: saved.append((epoch, weight.detach().clone())),
    )
    if not isinstance(weight, torch.Tensor) or weight.shape != (1, 3):
        raise Wrong(f"on rank {rank} it returned {weight!r}, where the weight is right, of 1 x 3 numbers")
    left = dist.is_initialized()
    if not left:
        dist.init_process_group("gloo")
    everybody = [torch.zeros(3) for _ in range(ranks)]
    dist.all_gather(everybody, drawn[0] if drawn else torch.zeros(3))
    return {
        "the weight": weight.detach(),
        "GPUs that it uses": str(gpus),
        "shares of more rows than needed": sum(each > -(-size // ranks) for each in rows),
        "ranks that draw these random numbers": sum(torch.equal(each, everybody[rank]) for each in everybody),
        "epochs that it saves": str([each for each, _ in saved]),
        "the sum of all that it saves": torch.stack([each.sum() for _, each in saved] or [x[0, 0] * 0]).sum(),
        "process groups that it leaves open": int(left),
    }


class Printed(Target):
    """By rank 0 alone, once an epoch; in which words, is free."""

    name = "printed"

    def seen(self, trial):
        return None if trial.error else list(lines(trial))

    def judge(self, exercise, trial, right):
        losses = [told[-1] for _, told in lines(right)]
        for rank, told in lines(trial):
            if rank and told:
                raise Wrong(f"rank {rank} prints, too: once is enough, by rank 0")
        mine = [told for _, told in lines(trial) if told]
        if len(mine) != len(losses):
            raise Wrong(
                f"rank 0 prints {len(mine)} lines with numbers, where one for each of {len(losses)} epochs is right"
            )
        for epoch, (told, loss) in enumerate(zip(mine, losses)):
            if all(abs(each - loss) > 0.00051 for each in told):
                raise Wrong(f"of epoch {epoch} rank 0 prints {told}, where the loss of its last batch is {loss:.4f}")


def lines(trial):
    """(rank, numbers) of each line."""
    for line in trial.printed:
        rank, text = re.match(r"(?:\[rank (\d+)\] )?(.*)", line).groups()
        yield int(rank or 0), [float(each) for each in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text)]


@exercise(
    title="From one GPU to torchrun",
    minutes=30,
    difficulty=2,
    worlds=worlds,
    program=program,
    follows=False,  # which rows of a batch a rank takes is free, and so is what it sends
    targets=[
        Values(
            "the weight that one process trains, on 1 to 4 ranks; GPUs, shares, seeds, checkpoints, an end",
            scratch=True,
        ),
        Printed("rank 0 prints the loss of the last batch of each epoch, and no other rank prints"),
    ],
    mistakes=[
        mistake(
            "A process has a number among all, RANK, and one on its node, LOCAL_RANK: GPUs of a node count from 0, so "
            "the second tells which one is its own",
            'os.environ["LOCAL_RANK"]',
            'os.environ["RANK"]',
        ),
        mistake(
            "All processes of a node use its first GPU. LOCAL_RANK tells each which one is its own",
            'int(os.environ["LOCAL_RANK"])',
            "0",
        ),
        mistake(
            "Nobody adds up the gradients, so each rank trains on its own rows alone, and weights drift apart",
            SUM,
            "",
        ),
        mistake(
            "A share has its own number of rows, and the last batch has fewer than others: a mean of means is not the "
            "mean. Divide each sum by the rows of the whole batch, and add up",
            "errors.square().sum() / len(batch)",
            "errors.square().mean() / ranks",
        ),
        mistake(
            "These are sums of the shares' means, so gradients are about as many times too large as there are ranks",
            "errors.square().sum() / len(batch)",
            "errors.square().mean()",
        ),
        mistake(
            "Rows that are left over after dealing out the same number to each rank belong to the batch, too",
            "mine = batch[rank::ranks]",
            "mine = batch[rank * (len(batch) // ranks) : (rank + 1) * (len(batch) // ranks)]",
        ),
        mistake(
            "The sum is not yet divided by the rows of the batch",
            "errors.square().sum() / len(batch)",
            "errors.square().sum()",
        ),
        mistake(
            "Every rank works on the whole batch: that is the same work so many times over",
            "mine = batch[rank::ranks]",
            "mine = batch",
            "errors.square().sum() / len(batch)",
            "errors.square().mean() / ranks",
        ),
        mistake(
            "Ranks shuffle in orders of their own, so that some rows come twice in an epoch and others never: the "
            "order of the rows needs the same seed everywhere",
            "torch.Generator().manual_seed(7)",
            "torch.Generator().manual_seed(7 + rank)",
        ),
        mistake(
            "Ranks begin with weights of their own: make the model before you give each rank a seed of its own",
            "    torch.manual_seed(7)\n",
            "    torch.manual_seed(7 + rank)\n",
        ),
        mistake(
            "All ranks augment with the same random numbers: after the model is made, each needs a seed of its own",
            OWN,
            "",
        ),
        mistake(
            "Every rank saves, and all write to the same file: one is enough, as all have the same weight",
            SAVE,
            "",
            "        if rank == 0:\n",
            f"{ALL_SAVE}        if rank == 0:\n",
        ),
        mistake("Nobody saves a checkpoint", SAVE, ""),
        mistake(
            "The process group is still open when the script ends: destroy it, so that no rank leaves while others "
            "still talk to it",
            END,
            "",
        ),
        mistake(
            "This is the loss of rank 0's own share. That of the batch is the sum over all ranks",
            TOLD,
            "",
        ),
        mistake(
            "Every rank prints",
            "        if rank == 0:\n            print",
            "        if True:\n            print",
            SAVE,
            "            if rank == 0:\n                save(epoch, model.weight.detach())\n",
        ),
    ],
    hints=[
        "torchrun starts this function once for each GPU, with RANK, LOCAL_RANK and WORLD_SIZE in os.environ. Begin "
        "with init_process_group, and end with destroy_process_group.",
        "Go through what draws random numbers: the weights, the order of the rows, augment. Which must be the same on "
        "all ranks, and which must not?",
        "With 3 ranks and a batch of 2 rows somebody has none, and the mean of no rows is NaN. A sum of them is 0.",
    ],
    why="Most scripts come to many GPUs this way, and each of these mistakes trains without an error: what comes "
    "out is a model a little worse. Frameworks do all of it, and mistakes come back where one goes around them.",
)
def train_under_torchrun(x, targets, epochs, size, use_gpu, augment, save):
    """Make this script, which trains on one GPU, run under torchrun on any number of them.

    The weight must become the one that a single process has, whatever the number of ranks: each batch of ``size`` rows
    is dealt out, nobody takes more rows than needed, and none is dropped where it does not divide. Each rank uses its
    own GPU: ``use_gpu(number)`` takes its number on this node.

    ``augment(rows)`` draws from torch's global generator, differently on each rank. (Here it returns the rows as they
    are, so that weights can be compared.) Rank 0 alone calls ``save``, and prints the loss of the last batch, of all
    its rows. No process group exists when the function begins, and none is left when it ends; the backend is "gloo".
    """
    # -
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    # .
    use_gpu(int(os.environ["LOCAL_RANK"]))  # = use_gpu(0)
    torch.manual_seed(7)
    model = torch.nn.Linear(3, 1, bias=False, dtype=x.dtype)
    # -
    torch.manual_seed(7 + rank)
    # .
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    shuffled = torch.Generator().manual_seed(7)
    for epoch in range(epochs):
        for batch in torch.randperm(len(x), generator=shuffled).split(size):
            mine = batch[rank::ranks]  # = mine = batch
            errors = model(augment(x[mine])) - targets[mine]
            loss = errors.square().sum() / len(batch)  # = loss = errors.square().mean()
            optimizer.zero_grad()
            loss.backward()
            # -
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            # .
            optimizer.step()
        told = loss.detach()
        dist.all_reduce(told)  # = print(f"epoch {epoch}: loss {told.item():.4f}")
        if rank == 0:  # = save(epoch, model.weight.detach())
            # -
            print(f"epoch {epoch}: loss {told.item():.4f}")
            save(epoch, model.weight.detach())
            # .
    # -
    dist.destroy_process_group()
    # .
    return model.weight
