"""Wrong answers to the exercises of 00_start_here: each with the property that rejects it, and what it is told."""

import torch
import torch.distributed as dist
from lab.registered import collection
from torch import nn
from torch.nn.utils import clip_grad_norm_

WRONG_ANSWERS, wrong = collection()

# average_uneven


@wrong("average_uneven", "bytes", "makes 3 collectives")
def sums_a_second_number(gradient, sequences):
    present, total = torch.ones(1), torch.tensor(float(sequences))
    gradient *= sequences
    for each in (present, gradient, total):
        dist.all_reduce(each)
    gradient /= total


@wrong("average_uneven", "bytes", "send 160 bytes")
def all_gathers_whole_gradients(gradient, sequences):
    total = torch.tensor(float(sequences))
    dist.all_reduce(total)
    everybody = [torch.empty_like(gradient) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, gradient * (sequences / total))
    gradient.copy_(sum(everybody))


@wrong("average_uneven", "communication", "results do not follow")
def knows_the_others(gradient, sequences):
    """It talks, and does not listen."""
    total = torch.tensor(float(sequences))
    dist.all_reduce(total)
    dist.all_reduce(gradient.clone())
    shares = [(2, 1), (3, 3), (6, 6, 4), (7, 1, 3, 2), (4, 4, 4, 4, 0), (5,)]
    rank, p = dist.get_rank(), dist.get_world_size()
    known = next(each for each in shares if len(each) == p and each[rank] == sequences)
    drawn = [torch.randn(6, generator=torch.Generator().manual_seed(each)) for each in range(p)]
    gradient.copy_(sum(own * count for own, count in zip(drawn, known)) / sum(known))


# mended_loop


def training(inputs, targets, steps, seed=0, limit=1.0, when="after", calls=1, whole=False):
    """A right one, if nothing is changed."""
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mine = slice(None) if whole else slice(rank * len(inputs) // p, (rank + 1) * len(inputs) // p)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs[mine]), targets[mine]).backward()
        for parameter in model.parameters():
            for _ in range(calls):
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        clip_grad_norm_(model.parameters(), limit)
        optimizer.step()
    return model.weight.detach()


@wrong("mended_loop", "values", "nobody sent anything")
def untrained(inputs, targets, steps):
    return torch.zeros(1, 3)


@wrong("mended_loop", "runs", "the operations differ")
def one_waits_at_a_barrier(inputs, targets, steps):
    if dist.get_rank() == 0:
        dist.barrier()
    return training(inputs, targets, steps)


@wrong(
    "mended_loop",
    "collectives",
    "no all-reduce",
)
def trains_on_everything_everywhere(inputs, targets, steps):
    return training(inputs, targets, steps, calls=0, whole=True)


@wrong("mended_loop", "own work", "torch.nn.parallel")
def librarys_own(inputs, targets, steps):
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rank, p = dist.get_rank(), dist.get_world_size()
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs.chunk(p)[rank]), targets.chunk(p)[rank]).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.module.weight.detach()


@wrong("mended_loop", "communication", "results do not follow")
def talks_and_does_not_listen(inputs, targets, steps):
    for _ in range(steps):
        dist.all_reduce(torch.zeros(1, 3))
        dist.all_reduce(torch.zeros(1))
    return training(inputs, targets, steps, calls=0, whole=True)


# settings_in_effect


@wrong("settings_in_effect", "values", "returned a number")
def one_number(optimizer, factor, learning_rate, clip, weight_decay, eps):
    return clip / factor


@wrong("settings_in_effect", "runs", "KeyError")
def knows_two_optimizers(optimizer, factor, learning_rate, clip, weight_decay, eps):
    longer = {"SGD": factor, "Adam": 1}[optimizer]
    return learning_rate * longer, clip / factor, weight_decay / factor, eps * longer / factor


@wrong("settings_in_effect", "values", "eps is")
def as_the_chapter_says_of_four_ranks(optimizer, factor, learning_rate, clip, weight_decay, eps):
    """Right for 4 alone."""
    return learning_rate * (4 if optimizer == "SGD" else 1), clip / 4, weight_decay / 4, eps / 4


@wrong("average_uneven", "values", "5 ranks, shares of 4, 4, 4, 4")
def nobody_counts_as_one(gradient, sequences):
    count = torch.tensor([float(max(sequences, 1))])
    gradient *= sequences
    dist.all_reduce(gradient)
    dist.all_reduce(count)
    gradient /= count


@wrong("average_uneven", "waits", "1 collective")
def goes_on_while_the_sum_travels(gradient, sequences):
    total = torch.tensor(float(sequences))
    dist.all_reduce(total)
    gradient *= sequences / total
    dist.all_reduce(gradient, async_op=True)
