"""A script for one GPU becomes one for torchrun, and trains the same weights on any number of processes."""

import os

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Values, exercise, mistake

from .script import Printed, program, world

OWN = "    torch.manual_seed(7 + rank)\n"
SUM = "            for parameter in model.parameters():\n                dist.all_reduce(parameter.grad)\n"
SAVE = "            save(epoch, model.weight.detach())\n"
ALL_SAVE = "        save(epoch, model.weight.detach())\n"


def test_cases():
    yield world(2)
    yield world(2, 11, 6)
    yield world(3, 12, 5, 3)
    yield world(4, 13, 4, per_node=2)
    yield world(1)


@exercise(
    title="From one GPU to torchrun",
    minutes=30,
    difficulty=2,
    test_cases=test_cases,
    program=program,
    check_communication=False,  # which rows of a batch a rank takes is free, and so is what it sends
    targets=[
        Values(
            "on 1 to 4 ranks each row once an epoch, and the weight of one process; GPUs, seeds, checkpoints, an end",
            scratch=True,
        ),
        Printed("rank 0 prints the loss of the last batch of each epoch, and no other rank prints"),
        Bytes(
            "an all-reduce of the gradient in each batch, a reduce of the loss in each epoch; up to 3 times as many",
            together=True,
            room=3.0,
        ),
    ],
    mistakes=[
        mistake(
            "All processes of a node use its first GPU. LOCAL_RANK tells each which one is its own",
            'int(os.environ["LOCAL_RANK"])',
            "0",
        ),
        mistake(
            "Nobody adds up the gradients, or waits for their sum: a rank trains on its own rows, and weights part",
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
            "A step is as many times too small as there are ranks: what is divided by the rows of the whole batch is "
            "to be added up, and not to be averaged, as DDP does",
            "dist.all_reduce(parameter.grad)",
            "dist.all_reduce(parameter.grad)\n                parameter.grad /= ranks",
        ),
        mistake(
            "Rows come twice, until all ranks have as many, as DistributedSampler deals them out: so they count twice",
            "mine = batch[rank::ranks]",
            "mine = torch.cat([batch, batch[: -len(batch) % ranks]])[rank::ranks]",
        ),
        mistake(
            "Ranks shuffle in orders of their own, so that some rows come twice in an epoch and others never: the "
            "order of the rows needs the same seed everywhere",
            "torch.Generator().manual_seed(7)",
            "torch.Generator().manual_seed(7 + rank)",
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
    ],
    hints=[
        "torchrun starts this function once for each GPU, with RANK, LOCAL_RANK and WORLD_SIZE in os.environ. Begin "
        "with init_process_group, and end with destroy_process_group.",
        "Go through what draws random numbers: the weights, the order of the rows, augment. Which must be the same on "
        "all ranks, and which must not?",
        "With 3 ranks and a batch of 2 rows somebody has none, and the mean of no rows is NaN. A sum of them is 0. And "
        "whoever leaves such a batch out does not come to the all-reduce.",
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
    model = torch.nn.Linear(3, 1, bias=False)
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
        dist.reduce(told, 0)  # = print(f"epoch {epoch}: loss {told.item():.4f}")
        if rank == 0:  # = save(epoch, model.weight.detach())
            # -
            print(f"epoch {epoch}: loss {told.item():.4f}")
            save(epoch, model.weight.detach())
            # .
    # -
    dist.destroy_process_group()
    # .
    return model.weight
