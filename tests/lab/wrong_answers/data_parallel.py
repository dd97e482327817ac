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

SENT = "works.append(dist.all_reduce(flats[len(works)], async_op=True))"
LEFT = "for flat in flats[len(works) :]:\n            "


@wrong("overlap", "time", "a wait stands in the middle")
def waits_inside_of_the_hook(buckets):
    return solved("overlap", SENT, f"{SENT}\n            works[-1].wait()")(buckets)


@wrong("overlap", "runs", "a parameter has no gradient")
def copies_as_the_notebook_does(buckets):
    """A new buffer for each bucket that is full; its means are copied back."""
    missing, started = [set(bucket) for bucket in buckets], []

    def start(bucket):
        zeros_where_none(bucket)
        flat = torch.cat([each.grad.flatten() for each in bucket])
        started.append((bucket, flat, dist.all_reduce(flat, async_op=True)))

    def ready(parameter):
        for parameters in missing:
            parameters.discard(parameter)
        while len(started) < len(buckets) and not missing[len(started)]:
            start(buckets[len(started)])

    def finish():
        for bucket in buckets[len(started) :]:
            start(bucket)
        for bucket, flat, work in started:
            work.wait()
            write_back(bucket, flat / dist.get_world_size())
        missing[:] = [set(bucket) for bucket in buckets]
        started.clear()

    for bucket in buckets:
        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(ready)
    return finish


@wrong("overlap", "memory", "besides its arguments")
def sends_copies_of_the_buffers(buckets):
    return solved(
        "overlap",
        "works = []",
        "works, copies = [], []",
        SENT,
        f"copies.append(flats[len(works)].clone())\n            {SENT.replace('flats[len(works)]', 'copies[-1]')}",
        LEFT,
        f"{LEFT}copies.append(flat := flat.clone())\n            ",
        "flat /= p",
        "flat.copy_(copies.pop(0) / p)",
    )(buckets)


def told(flat, place, step):
    """The bucket travels, and what is used is read from a global variable."""
    EVERYBODYS[dist.get_rank(), place, step] = flat.clone()


def sum_told(place, step):
    return sum(EVERYBODYS[rank, place, step] for rank in range(dist.get_world_size()))


@wrong("overlap", "communication", "results do not follow")
def beside_the_all_reduce(buckets):
    return solved(
        "overlap",
        "works = []",
        "works, steps = [], [0]",
        SENT,
        f"told(flats[len(works)], len(works), steps[0])\n            {SENT}",
        LEFT,
        f"{LEFT}told(flat, len(works), steps[0])\n            ",
        "for flat, work in zip(flats, works):",
        "for place, (flat, work) in enumerate(zip(flats, works)):",
        "flat /= p",
        "flat.copy_(sum_told(place, steps[0]) / p)",
        "works.clear()",
        "works.clear()\n        steps[0] += 1",
        told=told,
        sum_told=sum_told,
    )(buckets)


@wrong("overlap", "own work", "tinydist.data_parallel")
def in_a_hook_of_the_librarys(buckets):
    solved("overlap")(buckets)
    return lambda: sys.modules["tinydist.data_parallel"].average_flat([p for bucket in buckets for p in bucket])


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


@wrong("mended_training", "bytes", "the loss of the last")
def averages_each_loss(model, loader, epochs):
    p = dist.get_world_size()
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= p
            optimizer.step()
            mean = loss.detach()
            dist.all_reduce(mean)
    return mean.item() / p


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
def predicts_nothing(parameters, trained, ranks, microbatches, inputs, outputs):
    pass


@wrong("predict_traffic", "DP", "each byte of the parameters is 1")
def as_the_notebook_counts(parameters, trained, ranks, microbatches, inputs, outputs):
    """Formulas of the notebook, for one batch and a model that is trained as a whole."""
    p, share = ranks, (inputs + outputs) / ranks
    sent, received = (p - 1) * (parameters + share), (p - 1) * (parameters + outputs / p)
    return {"DP": (sent, received), "DDP": (2 * (p - 1) / p * parameters,) * 2}


SENT_BY_ROOT, RECEIVED_BY_ROOT = (
    "others * (microbatches * parameters + inputs / p + outputs / p)",
    "others * (outputs / p + microbatches * trained)",
)


@wrong("predict_traffic", "DP", "ranks=3, microbatches=1")
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
