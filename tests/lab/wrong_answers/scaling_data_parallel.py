"""Wrong answers to the exercises of 05b_scaling_data_parallel: with the property that rejects each, and what it is
told."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import collection, solved
from torch.nn.parallel import DistributedDataParallel

from tinydist.hardware import collective_time, find_cluster

WRONG_ANSWERS, wrong = collection()


def write_back(parameters, flat):
    for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters])):
        parameter.grad.copy_(part.view_as(parameter))


# accumulate


@wrong("accumulate", "runs", "after step 0")
def accumulates_nothing(ddp, microbatches):
    pass


def never_reduce(ddp, microbatches):
    return solved("accumulate", "microbatches[:-1]", "microbatches", "microbatches[-1:]", "[]")(ddp, microbatches)


@wrong("accumulate", "runs", "it hangs")
def none_on_one_rank(ddp, microbatches):
    (never_reduce if dist.get_rank() == 1 else solved("accumulate"))(ddp, microbatches)


@wrong("accumulate", "memory", "holds 84,516 bytes")
def one_large_batch(ddp, microbatches):
    inputs, targets = (torch.cat(tensors) for tensors in zip(*microbatches))
    F.mse_loss(ddp(inputs), targets).backward()


@wrong("accumulate", "waits", "2 collectives")
def by_hand_and_not_waited_for(ddp, microbatches):
    never_reduce(ddp, microbatches)
    parameters = list(ddp.parameters())
    flat = torch.cat([parameter.grad.flatten() for parameter in parameters])
    dist.all_reduce(flat, async_op=True)
    write_back(parameters, flat / dist.get_world_size())


@wrong("accumulate", "own work", "DistributedDataParallel")
def another_ddp(ddp, microbatches):
    return solved("accumulate")(DistributedDataParallel(ddp.module), microbatches)


# tokens_to_hide


@wrong("tokens_to_hide", "values", "4653")
def the_rule_of_a_book(dense, expert, experts, chosen, gradient_bytes, bucket_bytes, rate, latency, bandwidth):
    return round(rate / bandwidth)


@wrong("tokens_to_hide", "values", "in buckets of 100 MB")
def one_bucket_for_all(*arguments):
    dense, expert, experts, chosen, gradient_bytes, _, *network = arguments
    return solved("tokens_to_hide")(dense, expert, experts, chosen, gradient_bytes, 1e15, *network)


@wrong("tokens_to_hide", "values", "8 experts")
def as_if_dense(dense, expert, experts, chosen, *rest):
    return solved("tokens_to_hide")(dense + chosen * expert, 0, 0, 0, *rest)


@wrong("tokens_to_hide", "values", "the result is 1281, where 1280 is right")
def one_more_than_is_enough(*arguments):
    return solved("tokens_to_hide", "math.ceil(seconds", "1 + int(seconds")(*arguments)


@wrong("tokens_to_hide", "own work", "tinydist.hardware")
def asks_the_library(*arguments):
    collective_time("all_reduce", 1e6, 8, 8, find_cluster("H100 node"))
    return solved("tokens_to_hide")(*arguments)


# fewest_gpus


@wrong("fewest_gpus", "values", "the number of GPUs")
def all_of_them(batch, *rest):
    return batch, 1, 1


@wrong("fewest_gpus", "values", "a microbatch must divide the share of a GPU")
def largest_microbatch_and_rounded_up(batch, fits, deadline, forward, optimizer, all_reduce):
    for gpus in [gpus for gpus in range(1, batch + 1) if batch % gpus == 0]:
        size = min(fits, batch // gpus)
        often = -(-batch // gpus // size)
        shown = max(0.0, all_reduce(gpus) - 2 * forward * size)
        if often * size * 3 * forward + shown + optimizer <= deadline:
            return gpus, size, often
    return 0, 0, 0


@wrong("fewest_gpus", "values", "the number of GPUs is 0, where 14 is right")
def gives_up_when_a_step_takes_longer(batch, fits, deadline, forward, optimizer, all_reduce):
    shortest = float("inf")
    for gpus in [gpus for gpus in range(1, batch + 1) if batch % gpus == 0]:
        share = batch // gpus
        microbatch = max(each for each in range(1, min(fits, share) + 1) if share % each == 0)
        step = 3 * forward * share + max(0.0, all_reduce(gpus) - 2 * forward * microbatch) + optimizer
        if step <= deadline:
            return gpus, microbatch, share // microbatch
        if step > shortest:
            break
        shortest = step
    return 0, 0, 0


@wrong("fewest_gpus", "runs", "deadline that nobody keeps")
def there_is_always_one(*arguments):
    found = solved("fewest_gpus")(*arguments)
    if not found[0]:
        raise RuntimeError("no split is in time")
    return found


@wrong("fewest_gpus", "values", "the number of GPUs is 14")
def shares_need_not_be_whole(batch, fits, deadline, forward, optimizer, all_reduce):
    for gpus in range(1, batch + 1):
        share = -(-batch // gpus)
        microbatch = min(fits, share)
        waiting = max(0.0, all_reduce(gpus) - 2 * forward * microbatch)
        if 3 * forward * share + waiting + optimizer <= deadline:
            return gpus, microbatch, -(-share // microbatch)
    return 0, 0, 0
