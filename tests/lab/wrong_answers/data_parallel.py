"""Wrong answers to the exercises of 05_data_parallel: each with the property that rejects it, and what it is told."""

import importlib
import sys

import torch
import torch.distributed as dist
from lab.registered import collection, solved
from torch.nn.parallel import DistributedDataParallel

WRONG_ANSWERS, wrong = collection()


def zeros_where_none(parameters):
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def write_back(parameters, flat):
    for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters])):
        parameter.grad.copy_(part.view_as(parameter))


EVERYBODYS = {}  # what each rank writes, for all to read: ranks of a check are threads


# average_gradients


@wrong("average_gradients", "values", "3 ranks, of 2, 0, 1 samples")
def leaves_none(parameters, samples):
    solved("average_gradients")(parameters, samples)
    for parameter in parameters if not samples else ():
        parameter.grad = None


@wrong("average_gradients", "calls", "80 bytes")
def counts_beside_every_number(parameters, samples):
    zeros_where_none(parameters)
    flat = torch.cat([p.grad.flatten() * samples for p in parameters])
    both = torch.stack([flat, torch.full_like(flat, samples)])
    dist.all_reduce(both)
    write_back(parameters, both[0] / both[1])


@wrong("average_gradients", "waits", "1 collective")
def asks_and_goes_on(*arguments):
    return solved("average_gradients", "all_reduce(flat)", "all_reduce(flat, async_op=True)")(*arguments)


@wrong("average_gradients", "own work", "tinydist.data_parallel")
def librarys_own_imported_by_a_text(parameters, samples):
    zeros_where_none(parameters)
    importlib.import_module("tinydist.data" + "_parallel").average_flat(parameters)


def sum_in_memory(flat):
    EVERYBODYS[dist.get_rank()] = flat
    dist.all_reduce(torch.zeros_like(flat))  # as a barrier
    return sum(EVERYBODYS[rank] for rank in range(dist.get_world_size()))


@wrong("average_gradients", "communication", "results do not follow")
def through_a_global_variable(*arguments):
    return solved("average_gradients", "dist.all_reduce(flat)", "flat = share(flat)", share=sum_in_memory)(*arguments)


# overlap

SENT = "started.append((flat, dist.all_reduce(flat, async_op=True)))"
RECEIVED = "work.wait()"


@wrong("overlap", "time", "a wait stands in the middle")
def waits_inside_of_the_hook(buckets):
    waited = "started.append((flat, dist.all_reduce(flat, async_op=True)))\n        started[-1][1].wait()"
    return solved("overlap", SENT, waited, RECEIVED, "pass")(buckets)


def told(flat, place, step):
    """The bucket travels, and what is used is read from a global variable."""
    EVERYBODYS[dist.get_rank(), place, step] = flat.clone()


def sum_told(place, step):
    return sum(EVERYBODYS[rank, place, step] for rank in range(dist.get_world_size()))


@wrong("overlap", "communication", "results do not follow")
def beside_the_all_reduce(buckets):
    return solved(
        "overlap",
        "started = []",
        "started, steps = [], [0]",
        SENT,
        f"told(flat, len(started), steps[0])\n        {SENT}",
        "for bucket, (flat, work) in zip(buckets, started):",
        "for place, (bucket, (flat, work)) in enumerate(zip(buckets, started)):",
        RECEIVED,
        "work.wait()\n            flat = sum_told(place, steps[0])",
        "started.clear()",
        "started.clear()\n        steps[0] += 1",
        told=told,
        sum_told=sum_told,
    )(buckets)


@wrong("overlap", "memory", "besides its arguments")
def keeps_all_that_was_started(buckets):
    kept = "started, everything = [], []"
    return solved("overlap", "started = []", kept, RECEIVED, "work.wait()\n            everything.append(flat)")(
        buckets
    )


@wrong("overlap", "own work", "tinydist.data_parallel")
def in_a_hook_of_the_librarys(buckets):
    return lambda: sys.modules["tinydist.data_parallel"].average_flat([p for bucket in buckets for p in bucket])


@wrong("overlap", "collectives", "smaller dtype")
def buckets_of_float32(buckets):
    flat = "torch.cat([each.grad.flatten() for each in bucket])"
    return solved("overlap", flat, f"{flat}.float()")(buckets)


# mended_training

ALIKE = "dist.broadcast(tensor, 0)"


@wrong("mended_training", "bytes", "have 760 bytes")
def begins_alike_through_a_global_variable(model, loader, epochs):
    EVERYBODYS[dist.get_rank()] = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    dist.barrier()
    model.load_state_dict(EVERYBODYS[0])
    return solved("mended_training", ALIKE, "pass")(model, loader, epochs)


@wrong("mended_training", "bytes", "have 1,760 bytes")
def broadcasts_in_every_step(*arguments):
    every = "optimizer.zero_grad()\n            for tensor in [*model.parameters(), *model.buffers()]:\n"
    every += "                dist.broadcast(tensor.data, 0)"
    return solved("mended_training", "optimizer.zero_grad()", every)(*arguments)


@wrong("mended_training", "runs", "the model is never called")
def does_not_train(model, loader, epochs):
    return 0.0


@wrong("mended_training", "waits", "1 collective")
def does_not_wait_for_the_loss(*arguments):
    dist.all_reduce(torch.zeros(1), async_op=True)
    return solved("mended_training")(*arguments)


@wrong("mended_training", "own work", "DistributedDataParallel")
def lets_ddp_mend_it(model, loader, epochs):
    DistributedDataParallel(model)
    return solved("mended_training")(model, loader, epochs)


# predict_traffic


@wrong("predict_traffic", "runs", "it returned None")
def predicts_nothing(parameters, ranks, inputs, outputs):
    pass


@wrong("predict_traffic", "runs", "KeyError: (96, 2, 96, 72)")
def hard_coded(parameters, ranks, inputs, outputs):
    known = {(48, 1, 96, 72): (0, 0, 0, 0), (48, 2, 96, 72): (132, 84, 48, 48)}
    dp, ddp = known[parameters, ranks, inputs, outputs][:2], known[parameters, ranks, inputs, outputs][2:]
    return {"DP": dp, "DDP": ddp}


SENT_BY_ROOT, RECEIVED_BY_ROOT = (
    "others * (parameters + inputs / p + outputs / p)",
    "others * (outputs / p + parameters)",
)


@wrong("predict_traffic", "DP", "parameters=48, ranks=3, inputs=96")
def right_on_two_ranks(*sizes):
    return solved("predict_traffic", SENT_BY_ROOT, SENT_BY_ROOT.replace("others", "(p > 1)").replace("/ p", "/ 2"))(
        *sizes
    )


@wrong("predict_traffic", "DP", "is 4")
def and_a_number_more(*sizes):
    return solved("predict_traffic", RECEIVED_BY_ROOT, f"{RECEIVED_BY_ROOT} + 4 * (p > 1)")(*sizes)


@wrong("predict_traffic", "DDP", "of the outputs is 0.5")
def ddp_gathers_outputs(*sizes):
    return solved("predict_traffic", "ring, ring", "ring, ring + others / p * outputs")(*sizes)


# best_buckets


@wrong("best_buckets", "runs", "it returned None")
def no_buckets(backward, nbytes, latency, bandwidth):
    pass


@wrong("best_buckets", "runs", "together 8")
def too_few_layers(backward, nbytes, latency, bandwidth):
    return [1] * (len(backward) - 1)


@wrong("best_buckets", "values", "no latency")
def halves(backward, nbytes, latency, bandwidth):
    half = len(backward) // 2
    return [half, len(backward) - half] if half else [1]


@wrong("best_buckets", "values", "a large table")
def equal_sizes_at_their_best(backward, nbytes, latency, bandwidth):
    """The best bucket size, as if all layers were alike."""
    layers = len(backward)
    mean = [sum(backward) / layers] * layers, [sum(nbytes) / layers] * layers
    return solved("best_buckets")(*mean, latency, bandwidth)


@wrong("best_buckets", "values", "0.00928")
def as_pytorch_does(backward, nbytes, latency, bandwidth):
    counts, size = [0], 0
    for each in nbytes:
        if size >= 25 * 2**20:
            counts, size = [*counts, 0], 0
        counts[-1], size = counts[-1] + 1, size + each
    return counts
