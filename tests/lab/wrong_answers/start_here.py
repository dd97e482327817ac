"""Wrong answers to the exercises of 00_start_here: each with the property that rejects it, and what it is told."""

import torch
import torch.distributed as dist
from lab.registered import collection
from torch import nn
from torch.nn.utils import clip_grad_norm_

WRONG_ANSWERS, wrong = collection()

# average_uneven


@wrong("average_uneven", "values", "Each rank has weighted its own gradient, and nobody has summed them")
def only_weighted(gradient, sequences):
    counts = torch.tensor([float(sequences)])
    dist.all_reduce(counts)
    gradient.mul_(sequences / counts.item())


@wrong("average_uneven", "values", "nobody sent anything")
def does_nothing(gradient, sequences):
    pass


@wrong("average_uneven", "values", "This is the mean of the means")
def of_the_chapter(gradient, sequences):
    dist.all_reduce(gradient, op=dist.ReduceOp.AVG)


@wrong("average_uneven", "values", "The gradients are only added up")
def sums(gradient, sequences):
    dist.all_reduce(gradient)


@wrong("average_uneven", "runs", "A rank that has no sequences stays away")
def without_the_empty_ones(gradient, sequences):
    if sequences == 0:
        return
    total = torch.tensor(float(sequences))
    dist.all_reduce(total)
    gradient *= sequences / total
    dist.all_reduce(gradient)


@wrong("average_uneven", "values", "rank 0 returns a new tensor, but the task is to work in place")
def not_in_place(gradient, sequences):
    total = torch.tensor(float(sequences))
    dist.all_reduce(total)
    weighted = gradient * (sequences / total)
    dist.all_reduce(weighted)
    return weighted


@wrong("average_uneven", "values", "`gradient = ...` only gives the name to another tensor")
def renames(gradient, sequences):
    total = torch.tensor(float(sequences))
    dist.all_reduce(total)
    gradient = gradient * (sequences / total)
    dist.all_reduce(gradient)


@wrong("average_uneven", "bytes", "the ranks send 160 bytes in all, where 112 are right")
def all_gathers_whole_gradients(gradient, sequences):
    total = torch.tensor(float(sequences))
    dist.all_reduce(total)
    everybody = [torch.empty_like(gradient) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, gradient * (sequences / total))
    gradient.copy_(sum(everybody))


@wrong("average_uneven", "heard", "the results do not follow what is sent")
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


@wrong("mended_loop", "values", "The ranks start with different weights")
def own_seed(inputs, targets, steps):
    return training(inputs, targets, steps, seed=dist.get_rank())


@wrong("mended_loop", "values", "Nothing is clipped any more")
def never_clips(inputs, targets, steps):
    return training(inputs, targets, steps, limit=1e9)


@wrong("mended_loop", "values", "nobody sent anything")
def untrained(inputs, targets, steps):
    return torch.zeros(1, 3)


@wrong("mended_loop", "runs", "the operations differ")
def one_waits_at_a_barrier(inputs, targets, steps):
    if dist.get_rank() == 0:
        dist.barrier()
    return training(inputs, targets, steps)


@wrong("mended_loop", "collectives", "rank 0 makes all-reduces of 32 bytes in all, where 16 bytes are right")
def averages_twice(inputs, targets, steps):
    return training(inputs, targets, steps, calls=2)


@wrong("mended_loop", "collectives", "you call broadcast, where all_reduce is enough")
def broadcasts_the_result(inputs, targets, steps):
    weights = training(inputs, targets, steps)
    dist.broadcast(weights, 0)
    return weights


@wrong(
    "mended_loop",
    "collectives",
    "rank 0 makes no all-reduce, where 16 bytes are right: every",
)
def trains_on_everything_everywhere(inputs, targets, steps):
    return training(inputs, targets, steps, calls=0, whole=True)


@wrong("mended_loop", "own work", "average the gradients yourself")
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


@wrong("mended_loop", "heard", "the results do not follow what is sent")
def talks_and_does_not_listen(inputs, targets, steps):
    for _ in range(steps):
        dist.all_reduce(torch.zeros(1, 3))
        dist.all_reduce(torch.zeros(1))
    return training(inputs, targets, steps, calls=0, whole=True)


# settings_in_effect


@wrong("settings_in_effect", "values", "SGD and Adam add the decay to the gradient")
def all_stays(optimizer, ranks, learning_rate, clip, weight_decay):
    return learning_rate * (ranks if optimizer == "SGD" else 1), clip / ranks, weight_decay


@wrong("settings_in_effect", "values", "The learning rate is 0.1, and that is not right")
def nothing_changes(optimizer, ranks, learning_rate, clip, weight_decay):
    return learning_rate, clip, weight_decay


@wrong("settings_in_effect", "values", "the limit in effect is smaller, not larger")
def larger_limit(optimizer, ranks, learning_rate, clip, weight_decay):
    return learning_rate * (ranks if optimizer == "SGD" else 1), clip * ranks, weight_decay / ranks


@wrong("settings_in_effect", "values", "AdamW applies its decay directly to the weights")
def adamw_as_adam(optimizer, ranks, learning_rate, clip, weight_decay):
    return (learning_rate * ranks if optimizer == "SGD" else learning_rate), clip / ranks, weight_decay / ranks


@wrong("settings_in_effect", "values", "Adam and AdamW divide a gradient by its own size")
def as_sgd(optimizer, ranks, learning_rate, clip, weight_decay):
    return learning_rate * ranks, clip / ranks, weight_decay if optimizer == "AdamW" else weight_decay / ranks


@wrong("settings_in_effect", "values", "3 things are right: the learning rate, the clip, the weight")
def one_number(optimizer, ranks, learning_rate, clip, weight_decay):
    return clip / ranks


@wrong("settings_in_effect", "runs", "KeyError")
def knows_two_optimizers(optimizer, ranks, learning_rate, clip, weight_decay):
    factor = {"SGD": ranks, "Adam": 1}[optimizer]
    return learning_rate * factor, clip / ranks, weight_decay / ranks


@wrong("mended_loop", "heard", "Each rank trains on all samples")
def all_samples_on_every_rank(inputs, targets, steps):
    p = dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    my_inputs, my_targets = inputs, targets
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(my_inputs), my_targets)
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= p
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.weight.detach()


@wrong("mended_loop", "values", "What is clipped is still the sum")
def divides_the_learning_rate(inputs, targets, steps):
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 / p)
    my_inputs, my_targets = inputs.chunk(p)[rank], targets.chunk(p)[rank]
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(my_inputs), my_targets)
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.weight.detach()


@wrong("average_uneven", "values", "A rank without sequences counts as one here")
def nobody_counts_as_one(gradient, sequences):
    count = torch.tensor([float(max(sequences, 1))])
    gradient *= sequences
    dist.all_reduce(gradient)
    dist.all_reduce(count)
    gradient /= count


@wrong("average_uneven", "waits", "rank 0 does not wait for 1 collective: call wait() on what a call with")
def goes_on_while_the_sum_travels(gradient, sequences):
    total = torch.tensor(float(sequences))
    dist.all_reduce(total)
    gradient *= sequences / total
    dist.all_reduce(gradient, async_op=True)


@wrong("average_uneven", "values", "This is the mean of the means: a sequence of a short share counts more")
def divides_by_the_ranks_that_have_some(gradient, sequences):
    ranks = torch.tensor(float(sequences > 0))
    dist.all_reduce(ranks)
    gradient /= ranks
    dist.all_reduce(gradient)


@wrong("mended_loop", "values", "Only the gradient of the weight is averaged: the bias is a parameter, too")
def forgets_the_bias(inputs, targets, steps):
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs.chunk(p)[rank]), targets.chunk(p)[rank]).backward()
        dist.all_reduce(model.weight.grad, op=dist.ReduceOp.AVG)
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.weight.detach()
