"""Other right answers to the exercises of 05b_scaling_data_parallel: they must pass."""

import math

import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import others
from torch.nn.utils import parameters_to_vector

RIGHT_ANSWERS, right = others()


def new_gradients(parameters, flat):
    for parameter, mean in zip(parameters, flat.split([p.numel() for p in parameters])):
        parameter.grad = mean.view_as(parameter)


# accumulate


@right("accumulate")
def by_torchs_attribute(ddp, microbatches):
    """What torch's no_sync sets, and forward reads."""
    rows = sum(len(targets) for _, targets in microbatches)
    for number, (inputs, targets) in enumerate(microbatches, start=1):
        ddp.require_backward_grad_sync = number == len(microbatches)
        F.mse_loss(ddp(inputs), targets).mul(len(inputs) / rows).backward()


@right("accumulate")
def averaged_by_hand(ddp, microbatches):
    with ddp.no_sync():
        rows = sum(len(inputs) for inputs, _ in microbatches)
        for inputs, targets in microbatches:
            (((ddp(inputs) - targets) ** 2).mean() * len(inputs) / rows).backward()
    parameters = list(ddp.module.parameters())
    flat = parameters_to_vector([p.grad for p in parameters]) / dist.get_world_size()
    dist.all_reduce(flat)
    new_gradients(parameters, flat)


@right("accumulate")
def the_first_is_kept_for_the_end(ddp, microbatches):
    rows = sum(len(inputs) for inputs, _ in microbatches)
    first, *others = microbatches
    with ddp.no_sync():
        for inputs, targets in others:
            (F.mse_loss(ddp(inputs), targets) * len(inputs) / rows).backward()
    (F.mse_loss(ddp(first[0]), first[1]) * len(first[0]) / rows).backward()


# tokens_to_hide


@right("tokens_to_hide")
def by_a_token(dense, expert, experts, chosen, gradient_bytes, bucket_bytes, rate, latency, bandwidth):
    """Seconds of one token, and seconds of the network."""
    token = 4 * dense / rate + 4 * chosen * expert / rate
    numbers = dense + experts * expert
    full, rest = divmod(gradient_bytes * numbers, bucket_bytes)
    network = full * (latency + bucket_bytes / bandwidth) + (latency + rest / bandwidth if rest else 0)
    return math.ceil(network / token)


# fewest_gpus


@right("fewest_gpus")
def all_splits_sorted(batch, fits, deadline, forward, optimizer, all_reduce):
    found = []
    for microbatch in range(1, fits + 1):
        for accumulation in range(1, batch // microbatch + 1):
            gpus, rest = divmod(batch, microbatch * accumulation)
            if rest:
                continue
            before = 3 * forward * microbatch * accumulation
            end = max(before, before - 2 * forward * microbatch + all_reduce(gpus)) + optimizer
            if end <= deadline:
                found.append((gpus, -microbatch, accumulation))
    if not found:
        return 0, 0, 0
    gpus, microbatch, accumulation = min(found)
    return gpus, -microbatch, accumulation
