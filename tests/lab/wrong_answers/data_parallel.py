"""Wrong answers to the exercises of 05_data_parallel: each with the property that rejects it, and what it is told."""

import importlib
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import collection
from torch.nn.parallel import DistributedDataParallel

import tinydist
from tinydist.data_parallel import average_flat

WRONG_ANSWERS, wrong = collection()


# average_gradients


def zeros_where_none(parameters):
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def summed(parameters, samples, weight):
    """The sum over the ranks of gradients times ``weight``, and of samples."""
    zeros_where_none(parameters)
    flat = torch.cat([p.grad.flatten() * weight for p in parameters] + [torch.tensor([float(samples)])])
    dist.all_reduce(flat)
    return flat[:-1], flat[-1]


def write_back(parameters, flat):
    for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters])):
        parameter.grad.copy_(part.view_as(parameter))


@wrong(
    "average_gradients", "values", "on rank 1 weight.grad is nothing (None), where a tensor of shape [3, 2] is right"
)
def leaves_none(parameters, samples):
    if samples:
        zeros_where_none(parameters)
    calls = [p.grad.flatten() * samples if samples else torch.zeros(p.numel()) for p in parameters]
    flat = torch.cat([*calls, torch.tensor([float(samples)])])
    dist.all_reduce(flat)
    if samples:
        write_back(parameters, flat[:-1] / flat[-1])


@wrong(
    "average_gradients",
    "values",
    "nobody sent anything. Ranks of a real cluster share no memory: whatever one knows of",
)
def averages_nothing(parameters, samples):
    pass


@wrong("average_gradients", "values", "This is the sum of the ranks' gradients, and not a mean.")
def sum_of_means(parameters, samples):
    write_back(parameters, summed(parameters, samples, 1)[0])


@wrong(
    "average_gradients",
    "values",
    "Each rank's mean counts the same here, whether of few samples or many: weight each rank",
)
def mean_of_means(parameters, samples):
    write_back(parameters, summed(parameters, samples, 1)[0] / dist.get_world_size())


@wrong(
    "average_gradients", "values", "Each rank's mean counts the same here, whether of few samples or many: weight each"
)
def mean_of_those_that_have_some(parameters, samples):
    gradients, _ = summed(parameters, samples, 1)
    some = torch.tensor(float(samples > 0))
    dist.all_reduce(some)
    total = summed(parameters, samples, samples)
    right = dist.get_world_size() < 3
    write_back(parameters, total[0] / total[1] if right else gradients / some)


@wrong("average_gradients", "values", "This is the sum over all samples: divide it by their number.")
def never_divides(parameters, samples):
    write_back(parameters, summed(parameters, samples, samples)[0])


@wrong(
    "average_gradients", "values", "This is the sum over all samples, divided by the number of ranks: divide by that of"
)
def divides_by_ranks(parameters, samples):
    p = dist.get_world_size()
    gradients, count = summed(parameters, samples, samples)
    write_back(parameters, gradients / (p if p > 1 else count))


@wrong(
    "average_gradients",
    "values",
    "This is the mean, times the number of ranks: the sum over samples needs no such factor.",
)
def times_the_world_size(parameters, samples):
    gradients, count = summed(parameters, samples, samples)
    write_back(parameters, gradients / count * dist.get_world_size())


@wrong("average_gradients", "values", "the result is 2 times too small, and there are as many ranks: a mean, where")
def divided_by_both(parameters, samples):
    gradients, count = summed(parameters, samples, samples)
    write_back(parameters, gradients / count / dist.get_world_size())


@wrong("average_gradients", "values", "It is divided by the number of all samples twice.")
def divided_twice(parameters, samples):
    gradients, count = summed(parameters, samples, samples)
    write_back(parameters, gradients / count / count)


@wrong("average_gradients", "values", "each rank divides by the number of its own")
def divides_by_its_own(parameters, samples):
    write_back(parameters, summed(parameters, samples, samples)[0] / max(1, samples))


@wrong("average_gradients", "values", "Rank 0 alone has the mean; but all ranks take the step, and all need it.")
def only_rank_0_has_it(parameters, samples):
    zeros_where_none(parameters)
    flat = torch.cat([p.grad.flatten() * samples for p in parameters] + [torch.tensor([float(samples)])])
    dist.reduce(flat, 0)
    if dist.get_rank() == 0:
        write_back(parameters, flat[:-1] / flat[-1])


@wrong("average_gradients", "runs", "A rank without samples must take part, too: the others wait for its all-reduce.")
def ranks_without_samples_stay_away(parameters, samples):
    if samples:
        gradients, count = summed(parameters, samples, samples)
        write_back(parameters, gradients / count)


@wrong("average_gradients", "runs", "TypeError")
def forgets_that_gradients_may_be_none(parameters, samples):
    flat = torch.cat([(p.grad * samples).flatten() for p in parameters] + [torch.tensor([float(samples)])])
    dist.all_reduce(flat)
    write_back(parameters, flat[:-1] / flat[-1])


@wrong(
    "average_gradients", "calls", "rank 0 makes 4 all-reduces, where 1 is right: one for each parameter pays as many"
)
def one_call_for_each(parameters, samples):
    zeros_where_none(parameters)
    count = torch.tensor(float(samples))
    dist.all_reduce(count)
    for parameter in parameters:
        parameter.grad *= samples
        dist.all_reduce(parameter.grad)
        parameter.grad /= count


@wrong("average_gradients", "calls", "you call all_gather, where all_reduce is enough")
def gathers_all(parameters, samples):
    zeros_where_none(parameters)
    mine = torch.cat([p.grad.flatten() * samples for p in parameters] + [torch.tensor([float(samples)])])
    everybodys = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, mine)
    flat = sum(everybodys)
    write_back(parameters, flat[:-1] / flat[-1])


@wrong(
    "average_gradients",
    "calls",
    "all-reduce 0 of rank 0 has 80 bytes, where 44 are right. It carries all gradients, in",
)
def counts_beside_every_number(parameters, samples):
    zeros_where_none(parameters)
    flat = torch.cat([p.grad.flatten() * samples for p in parameters])
    both = torch.stack([flat, torch.full_like(flat, samples)])
    dist.all_reduce(both)
    write_back(parameters, both[0] / both[1])


@wrong("average_gradients", "waits", "rank 0 does not wait for 1 collective: call wait()")
def asks_and_goes_on(parameters, samples):
    zeros_where_none(parameters)
    flat = torch.cat([p.grad.flatten() * samples for p in parameters] + [torch.tensor([float(samples)])])
    dist.all_reduce(flat, async_op=True)
    write_back(parameters, flat[:-1] / flat[-1])


@wrong("average_gradients", "own work", "you call tinydist.data_parallel, where this is solved")
def librarys_own(parameters, samples):
    zeros_where_none(parameters)
    average_flat(parameters)


@wrong("average_gradients", "own work", "you call tinydist.data_parallel, where this is solved")
def librarys_own_imported_by_a_text(parameters, samples):
    zeros_where_none(parameters)
    importlib.import_module("tinydist.data" + "_parallel").average_flat(parameters)


EVERYBODYS = {}  # rank -> what it writes, for all to read: ranks of a check are threads


@wrong("average_gradients", "heard", "the numbers that rank 1 sends changed on the way: the results do not follow what")
def through_a_global_variable(parameters, samples):
    zeros_where_none(parameters)
    flat = torch.cat([p.grad.flatten() * samples for p in parameters] + [torch.tensor([float(samples)])])
    EVERYBODYS[dist.get_rank()] = flat
    dist.all_reduce(torch.zeros_like(flat))  # as a barrier
    total = sum(EVERYBODYS[rank] for rank in range(dist.get_world_size()))
    write_back(parameters, total[:-1] / total[-1])


@wrong("average_gradients", "values", "the sum of the ranks' means, and each rank divides it by the number of its own")
def means_divided_by_its_own(parameters, samples):
    p = dist.get_world_size()
    write_back(parameters, summed(parameters, samples, 1)[0] / (max(1, samples) if p > 1 else 1))


@wrong(
    "average_gradients",
    "values",
    "Each rank's mean is divided by its samples once more, before they are added: backward",
)
def each_divided_by_its_samples(parameters, samples):
    write_back(parameters, summed(parameters, samples, 1 / max(1, samples) if dist.get_world_size() > 1 else 1)[0])


@wrong(
    "average_gradients",
    "values",
    "This is the sum of the ranks' means, divided by the number of all samples: multiply each",
)
def never_multiplies(parameters, samples):
    gradients, count = summed(parameters, samples, 1)
    write_back(parameters, gradients / (count if dist.get_world_size() > 1 else 1))


@wrong(
    "average_gradients", "values", "The numbers are cut up in another order than that in which they were put together."
)
def cut_from_the_other_end(parameters, samples):
    gradients, count = summed(parameters, samples, samples)
    write_back(parameters[::-1], gradients / count)


# overlap


def full_number(full, bucket):
    return next(number for number, each in enumerate(full) if each is bucket)


def in_buckets(buckets, start, finish_bucket, in_order=True):
    """Hooks that call ``start(bucket)`` when it is full; ``finish`` calls ``finish_bucket(bucket, what it gave)``."""
    missing, started, order = [set(bucket) for bucket in buckets], {}, []

    def ready(parameter):
        for parameters in missing:
            parameters.discard(parameter)
        for number, bucket in enumerate(buckets):
            if number not in started:
                if not missing[number]:
                    started[number] = start(bucket)
                    order.append(number)
                elif in_order:
                    break

    def finish():
        for number, bucket in enumerate(buckets):
            if number not in started:
                started[number] = start(bucket)
                order.append(number)
        for number in order:
            finish_bucket(buckets[number], started[number])
        missing[:] = [set(bucket) for bucket in buckets]
        started.clear(), order.clear()

    for bucket in buckets:
        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(ready)
    return finish


def flat_of(bucket):
    zeros_where_none(bucket)
    return torch.cat([parameter.grad.flatten() for parameter in bucket])


def begin(bucket):
    flat = flat_of(bucket)
    return flat, dist.all_reduce(flat, async_op=True)


def end(bucket, begun):
    flat, work = begun
    work.wait()
    write_back(bucket, flat / dist.get_world_size())


@wrong("overlap", "runs", "it returned None, where it should return the function finish")
def registers_nothing(buckets):
    pass


@wrong("overlap", "collectives", "rank 0 makes 0 all-reduces, where 6 are right: one for each bucket, in each step")
def finishes_nothing(buckets):
    return lambda: None


@wrong("overlap", "time", "nothing overlaps: the first call starts when all is computed.")
def all_after_backward(buckets):
    def finish():
        for bucket in buckets:
            end(bucket, begin(bucket))

    return finish


@wrong("overlap", "time", "nothing overlaps: the first call starts when all is computed.")
def all_at_once_after_backward(buckets):
    def finish():
        for bucket, begun in [(bucket, begin(bucket)) for bucket in buckets]:
            end(bucket, begun)

    return finish


@wrong("overlap", "time", "a wait stands in the middle of what is computed, and holds it up.")
def waits_inside_of_the_hook(buckets):
    def start(bucket):
        end(bucket, begin(bucket))

    return in_buckets(buckets, start, lambda bucket, nothing: None)


@wrong("overlap", "time", "a wait stands in the middle of what is computed, and holds it up.")
def without_async_op(buckets):
    def start(bucket):
        flat = flat_of(bucket)
        dist.all_reduce(flat)
        return flat

    return in_buckets(buckets, start, lambda bucket, flat: write_back(bucket, flat / dist.get_world_size()))


@wrong("overlap", "time", "a wait stands in the middle of what is computed, and holds it up.")
def waits_for_the_bucket_before(buckets):
    begun = []

    def start(bucket):
        if begun:
            begun[-1][1].wait()
        begun.append(begin(bucket))
        return begun[-1]

    return in_buckets(buckets, start, end)


@wrong("overlap", "time", "A bucket starts when the next one is full.")
def one_bucket_late(buckets):
    full = []

    def start(bucket):
        full.append(bucket)
        return begin(full[-2]) if len(full) > 1 else None

    def finish_bucket(bucket, begun):
        if begun:
            end(full[full_number(full, bucket) - 1], begun)
        if bucket is buckets[-1]:
            end(bucket, begin(bucket))
            full.clear()

    return in_buckets(buckets, start, finish_bucket)


@wrong("overlap", "collectives", "This is one all-reduce for each parameter: a bucket travels in one.")
def one_a_parameter(buckets):
    return in_buckets([[parameter] for bucket in buckets for parameter in bucket], begin, end)


@wrong("overlap", "values", "The gradients of one branch are mixed with those of the other. All ranks must start the")
def in_the_order_in_which_they_fill(buckets):
    return in_buckets(buckets, begin, end, in_order=False)


@wrong("overlap", "runs", "All ranks must start the buckets in their order")
def the_other_way_round_on_rank_1(buckets):
    if dist.get_rank() != 1:
        return all_after_backward(buckets)

    def finish():
        for bucket in reversed(buckets):
            end(bucket, begin(bucket))

    return finish


@wrong("overlap", "collectives", "The buckets start in another order than theirs.")
def the_last_bucket_first(buckets):
    def finish():
        for bucket in reversed(buckets):
            end(bucket, begin(bucket))

    return finish


@wrong("overlap", "waits", "rank 0 does not wait for 6 collectives: call wait()")
def forgets_to_wait(buckets):
    return in_buckets(buckets, begin, lambda bucket, begun: write_back(bucket, begun[0] / dist.get_world_size()))


@wrong("overlap", "values", "This is the sum, and the mean is asked for: divide by the number of ranks.")
def the_sum(buckets):
    def end_with_the_sum(bucket, begun):
        begun[1].wait()
        write_back(bucket, begun[0])

    return in_buckets(buckets, begin, end_with_the_sum)


@wrong("overlap", "values", "The means are not written back: the ranks have their own gradients.")
def writes_nothing_back(buckets):
    return in_buckets(buckets, begin, lambda bucket, begun: begun[1].wait())


@wrong("overlap", "heard", "the results do not follow what is sent: they do not come from that alone. Ranks of a real")
def beside_the_all_reduce(buckets):
    """The bucket travels, and what is used is read from a global variable."""
    steps = [0]

    def start(bucket):
        number = full_number(buckets, bucket)
        EVERYBODYS[dist.get_rank(), number, steps[0]] = flat_of(bucket)
        return begin(bucket)

    def finish_bucket(bucket, begun):
        number = full_number(buckets, bucket)
        begun[1].wait()
        total = sum(EVERYBODYS[rank, number, steps[0]] for rank in range(dist.get_world_size()))
        write_back(bucket, total / dist.get_world_size())
        steps[0] += bucket is buckets[-1]

    return in_buckets(buckets, start, finish_bucket)


@wrong("overlap", "memory", "Each step keeps what it has sent: at its end finish must forget what was started.")
def keeps_all_that_was_started(buckets):
    everything = []  # (bucket, what it began), of all steps: the later ones write over the earlier ones

    def finish_bucket(bucket, begun):
        everything.append((bucket, begun))
        for bucket, begun in everything:
            end(bucket, begun)

    return in_buckets(buckets, begin, finish_bucket)


@wrong("overlap", "values", "The numbers are cut up in another order than that in which they were put together.")
def cut_from_the_other_side(buckets):
    def backwards(bucket, begun):
        begun[1].wait()
        write_back(bucket[::-1], begun[0] / dist.get_world_size())

    return in_buckets(buckets, begin, backwards)


@wrong("overlap", "runs", "on rank 0 it returned a list, where it should return the function finish")
def returns_the_buckets(buckets):
    return buckets


@wrong("overlap", "own work", "you call tinydist.data_parallel, where this is solved")
def in_a_hook_of_the_librarys(buckets):
    return lambda: sys.modules["tinydist.data_parallel"].average_flat([p for bucket in buckets for p in bucket])


def without_a_new_beginning(buckets, forgets):
    missing, started = [set(bucket) for bucket in buckets], []

    def ready(parameter):
        for parameters in missing:
            parameters.discard(parameter)
        while len(started) < len(buckets) and not missing[len(started)]:
            started.append(begin(buckets[len(started)]))

    def finish():
        for bucket, begun in zip(buckets, started):
            end(bucket, begun)
        if forgets != "started":
            started.clear()
        if forgets != "missing":
            missing[:] = [set(bucket) for bucket in buckets]

    for parameter in [parameter for bucket in buckets for parameter in bucket]:
        parameter.register_post_accumulate_grad_hook(ready)
    return finish


@wrong(
    "overlap", "collectives", "The second step makes none: at its end finish must bring all back to where it began. Is"
)
def works_once(buckets):
    return without_a_new_beginning(buckets, forgets="started")


@wrong("overlap", "values", "After the first step every bucket counts as full")
def all_buckets_are_full_for_ever(buckets):
    return without_a_new_beginning(buckets, forgets="missing")


@wrong("overlap", "collectives", "Several buckets may be ready to start at once: as long as the next one in line is")
def one_for_each_hook(buckets):
    """Where several can start, the others are forgotten."""
    missing, started = [set(bucket) for bucket in buckets], []

    def ready(parameter):
        for parameters in missing:
            parameters.discard(parameter)
        if len(started) < len(buckets) and not missing[len(started)]:
            started.append(begin(buckets[len(started)]))

    def finish():
        for bucket, begun in zip(buckets, started):
            end(bucket, begun)
        started.clear()
        missing[:] = [set(bucket) for bucket in buckets]

    for parameter in [parameter for bucket in buckets for parameter in bucket]:
        parameter.register_post_accumulate_grad_hook(ready)
    return finish


@wrong("overlap", "runs", "A bucket in which a gradient is missing never starts, and the other ranks wait for it.")
def as_in_the_notebook(buckets):
    return without_a_new_beginning(buckets, forgets="nothing")


def in_buckets_and_then(buckets, rest, end=end):
    """What has not started when backward has ended starts by ``rest(bucket)``, in the order that it gives."""
    missing, started = [set(bucket) for bucket in buckets], []

    def ready(parameter):
        for parameters in missing:
            parameters.discard(parameter)
        while len(started) < len(buckets) and not missing[len(started)]:
            started.append(begin(buckets[len(started)]))

    def finish():
        for bucket in buckets[len(started) :]:
            started.append(rest(bucket))
        for bucket, begun in zip(buckets, started):
            end(bucket, begun, set().union(*missing))
        started.clear()
        missing[:] = [set(bucket) for bucket in buckets]

    for parameter in [parameter for bucket in buckets for parameter in bucket]:
        parameter.register_post_accumulate_grad_hook(ready)
    return finish


@wrong("overlap", "values", "A parameter that this rank has left out keeps its own gradient, or none.")
def what_is_missing_stays_as_it_is(buckets):
    def end_of_those_that_came(bucket, begun, missing):
        flat, work = begun
        work.wait()
        for parameter, part in zip(bucket, flat.split([p.numel() for p in bucket])):
            if parameter not in missing:
                parameter.grad = part.view_as(parameter) / dist.get_world_size()

    return in_buckets_and_then(buckets, begin, end_of_those_that_came)


@wrong("overlap", "runs", "A gradient that is missing is a hole in the bucket")
def without_those_that_are_missing(buckets):
    def rest(bucket):
        return begin([parameter for parameter in bucket if parameter.grad is not None])

    return in_buckets_and_then(buckets, rest, lambda bucket, begun, missing: end(bucket, begun))


@wrong("overlap", "own work", "you call torch's DistributedDataParallel, where this is solved")
def in_torchs_ddp(buckets):
    DistributedDataParallel(torch.nn.ParameterList(buckets[0]))
    return lambda: None


# accumulate


def loss_of(model, microbatch):
    inputs, targets = microbatch
    return F.mse_loss(model(inputs), targets)


def part(microbatch, microbatches):
    return len(microbatch[0]) / sum(len(inputs) for inputs, _ in microbatches)


def never_reduce(ddp, microbatches):
    with ddp.no_sync():
        for microbatch in microbatches:
            (loss_of(ddp, microbatch) * part(microbatch, microbatches)).backward()


def but_the_last_in_no_sync(ddp, microbatches, weight):
    with ddp.no_sync():
        for microbatch in microbatches[:-1]:
            (loss_of(ddp, microbatch) * weight(microbatch)).backward()
    (loss_of(ddp, microbatches[-1]) * weight(microbatches[-1])).backward()


@wrong("accumulate", "runs", "on rank 0, there are no gradients after step 0: was backward called?")
def accumulates_nothing(ddp, microbatches):
    pass


@wrong(
    "accumulate",
    "reductions",
    "Each microbatch is reduced: all but the last belong in no_sync, and not only their backward:",
)
def reduces_each(ddp, microbatches):
    for microbatch in microbatches:
        (loss_of(ddp, microbatch) * part(microbatch, microbatches)).backward()


@wrong("accumulate", "reductions", "it is forward that notes whether to reduce")
def no_sync_round_backward_only(ddp, microbatches):
    for microbatch in microbatches[:-1]:
        loss = loss_of(ddp, microbatch) * part(microbatch, microbatches)
        with ddp.no_sync():
            loss.backward()
    (loss_of(ddp, microbatches[-1]) * part(microbatches[-1], microbatches)).backward()


@wrong(
    "accumulate",
    "values",
    "Each rank has gradients of its own: nothing was reduced. The last microbatch must be outside",
)
def all_in_no_sync(ddp, microbatches):
    never_reduce(ddp, microbatches)


@wrong("accumulate", "runs", "it hangs: the ranks wait for one another")
def none_on_one_rank(ddp, microbatches):
    if dist.get_rank() == 1:
        never_reduce(ddp, microbatches)
    else:
        but_the_last_in_no_sync(ddp, microbatches, lambda each: part(each, microbatches))


@wrong("accumulate", "values", "These are the gradients of the last microbatch alone: who deleted the others?")
def the_last_only(ddp, microbatches):
    loss_of(ddp, microbatches[-1]).backward()


@wrong(
    "accumulate",
    "values",
    "These are the gradients of the last microbatch alone, though weighted right: are the others",
)
def zero_grad_before_each(ddp, microbatches):
    for microbatch in microbatches:
        ddp.zero_grad()
        (loss_of(ddp, microbatch) * part(microbatch, microbatches)).backward()


@wrong(
    "accumulate",
    "values",
    "This is the sum of the microbatches' means: each loss counts only for its part of the rows.",
)
def not_divided(ddp, microbatches):
    but_the_last_in_no_sync(ddp, microbatches, lambda each: 1)


@wrong(
    "accumulate",
    "values",
    "This is the mean of the microbatches' means: one of few rows counts as much as one of many.",
)
def divided_by_the_number_of_microbatches(ddp, microbatches):
    but_the_last_in_no_sync(ddp, microbatches, lambda each: 1 / len(microbatches))


@wrong("accumulate", "values", "It is divided by the number of ranks: ddp has divided already.")
def divided_by_ranks_too(ddp, microbatches):
    but_the_last_in_no_sync(ddp, microbatches, lambda each: part(each, microbatches) / dist.get_world_size())


@wrong("accumulate", "values", "Each loss counts for its part of the rows, a fraction: divide by all rows.")
def weighted_by_rows(ddp, microbatches):
    but_the_last_in_no_sync(ddp, microbatches, lambda each: len(each[0]))


@wrong(
    "accumulate",
    "values",
    "The first microbatch is reduced, and not the last: what is added later stays each rank's own.",
)
def reduces_the_first(ddp, microbatches):
    (loss_of(ddp, microbatches[0]) * part(microbatches[0], microbatches)).backward()
    with ddp.no_sync():
        for microbatch in microbatches[1:]:
            (loss_of(ddp, microbatch) * part(microbatch, microbatches)).backward()


@wrong("accumulate", "values", "It is divided by the number of microbatches, too: divided twice.")
def divided_by_both_of_them(ddp, microbatches):
    but_the_last_in_no_sync(ddp, microbatches, lambda each: part(each, microbatches) / len(microbatches))


@wrong(
    "accumulate", "memory", "activations of one microbatch at a time: its backward comes before the next one's forward"
)
def all_forwards_first(ddp, microbatches):
    sum(loss_of(ddp, each) * part(each, microbatches) for each in microbatches).backward()


@wrong(
    "accumulate", "memory", "activations of one microbatch at a time: its backward comes before the next one's forward"
)
def one_large_batch(ddp, microbatches):
    loss_of(ddp, [torch.cat(tensors) for tensors in zip(*microbatches)]).backward()


@wrong("accumulate", "waits", "rank 0 does not wait for 2 collectives")
def by_hand_and_not_waited_for(ddp, microbatches):
    never_reduce(ddp, microbatches)
    parameters = list(ddp.parameters())
    flat = flat_of(parameters)
    dist.all_reduce(flat, async_op=True)
    write_back(parameters, flat / dist.get_world_size())


@wrong("accumulate", "own work", "you call torch's DistributedDataParallel")
def another_ddp(ddp, microbatches):
    but_the_last_in_no_sync(DistributedDataParallel(ddp.module), microbatches, lambda each: part(each, microbatches))


@wrong("accumulate", "values", "Another ddp is made: use the one that is given.")
def another_ddp_of_the_librarys(ddp, microbatches):
    again = tinydist.data_parallel.DDP(ddp.module)
    but_the_last_in_no_sync(again, microbatches, lambda each: part(each, microbatches))


@wrong(
    "accumulate",
    "values",
    "Each microbatch's mean is divided by all rows, but counts for its part of them: multiply it by",
)
def divided_by_all_rows(ddp, microbatches):
    rows = sum(len(inputs) for inputs, _ in microbatches)
    but_the_last_in_no_sync(ddp, microbatches, lambda each: 1 / rows)


@wrong(
    "accumulate",
    "values",
    "Each microbatch's mean is divided by its rows once more: it counts for its part of the rows,",
)
def divided_by_its_own_rows(ddp, microbatches):
    one = len(microbatches) == 1
    but_the_last_in_no_sync(ddp, microbatches, lambda each: 1 if one else 1 / len(each[0]))


@wrong("accumulate", "values", 'This is the sum of squares, as of reduction="sum": the mean is over rows and columns.')
def sums_of_squares(ddp, microbatches):
    but_the_last_in_no_sync(ddp, microbatches, lambda each: each[1].numel())  # times a mean: the sum


@wrong("accumulate", "values", 'This is the sum of squares, as of reduction="sum": the mean is over rows and columns.')
def sums_of_squares_over_rows(ddp, microbatches):
    rows = sum(len(inputs) for inputs, _ in microbatches)
    but_the_last_in_no_sync(ddp, microbatches, lambda each: each[1].numel() / rows)


# mended_training


def training(
    model,
    loader,
    epochs,
    parameters=True,
    buffers=True,
    set_epoch=True,
    divide=True,
    log="all",
    every_step=False,
    src=0,
    average=True,
):
    """A right one, if nothing else is asked for."""
    p = dist.get_world_size()

    def begin_alike():
        for tensor in [*model.parameters()] * parameters + [*model.buffers()] * buffers:
            dist.broadcast(tensor.data, src % p)

    begin_alike()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        if set_epoch is True:
            loader.sampler.set_epoch(epoch)
        for inputs, targets in loader:
            if every_step:
                begin_alike()
            optimizer.zero_grad()
            loss = F.mse_loss(model(inputs), targets)
            loss.backward()
            for parameter in model.parameters() if average else ():
                dist.all_reduce(parameter.grad)
                parameter.grad /= p if divide else 1
            optimizer.step()
        if set_epoch == "late":
            loader.sampler.set_epoch(epoch)
    mean = loss.detach()
    if log in ("all", "sum") or dist.get_rank() == 0 == log:
        dist.all_reduce(mean)
        if log == "sum":
            return mean.item()
    return mean.item() / (1 if log == "own" else p)


@wrong("mended_training", "runs", "A collective ends when all ranks have called it: it cannot stand in a branch")
def still_logs_on_rank_0(model, loader, epochs):
    return training(model, loader, epochs, log=0)


@wrong(
    "mended_training",
    "loss",
    "This is its own loss, divided by the number of ranks. Nobody has added them up: all ranks must",
)
def divides_its_own_loss(model, loader, epochs):
    return training(model, loader, epochs, log="nobody")


@wrong("mended_training", "runs", "on rank 1 the model is never called")
def logs_before_the_training(model, loader, epochs):
    if dist.get_rank() == 0:
        dist.barrier()
    return training(model, loader, epochs) if dist.get_rank() == 0 else 0.0


@wrong(
    "mended_training",
    "parameters",
    "All ranks add the same gradients, but to different numbers, and stay apart: broadcast the",
)
def parameters_not_broadcast(model, loader, epochs):
    return training(model, loader, epochs, parameters=False)


@wrong("mended_training", "parameters", "Not even rank 0 begins with its own numbers: those of rank 0 are to be kept.")
def broadcast_from_rank_1(model, loader, epochs):
    return training(model, loader, epochs, src=1)


@wrong(
    "mended_training",
    "buffers",
    "A buffer is no parameter, gets no gradient, and model.parameters() does not have it; but",
)
def buffers_not_broadcast(model, loader, epochs):
    return training(model, loader, epochs, buffers=False)


@wrong(
    "mended_training",
    "epochs",
    "All epochs have the samples in the same order. The sampler shuffles by the number of the",
)
def without_set_epoch(model, loader, epochs):
    return training(model, loader, epochs, set_epoch=False)


@wrong("mended_training", "epochs", "The first epoch is epoch 0.")
def epochs_counted_from_one(model, loader, epochs):
    loader.sampler.set_epoch, set_epoch = lambda epoch: set_epoch(epoch + 1), loader.sampler.set_epoch
    return training(model, loader, epochs)


@wrong(
    "mended_training", "values", "Steps are too long by the number of ranks: gradients are added up, and not averaged."
)
def sums_and_does_not_average(model, loader, epochs):
    return training(model, loader, epochs, divide=False)


@wrong("mended_training", "values", "Each rank trains on its own batches: gradients are not averaged.")
def averages_no_gradients(model, loader, epochs):
    return training(model, loader, epochs, average=False)


@wrong("mended_training", "loss", "This is its own loss. All ranks must take part in the sum, and all divide.")
def returns_its_own_loss(model, loader, epochs):
    return training(model, loader, epochs, log="own")


@wrong("mended_training", "loss", "This is the sum of all ranks' losses: divide it by their number.")
def returns_the_sum(model, loader, epochs):
    return training(model, loader, epochs, log="sum")


@wrong("mended_training", "bytes", "Ranks of a real cluster share no memory: whatever one knows of another has to come")
def begins_alike_through_a_global_variable(model, loader, epochs):
    EVERYBODYS[dist.get_rank()] = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    dist.barrier()
    model.load_state_dict(EVERYBODYS[0])
    return training(model, loader, epochs, parameters=False, buffers=False)


@wrong("mended_training", "runs", "rank 0 returned None, where it should return the mean loss")
def returns_nothing(model, loader, epochs):
    training(model, loader, epochs)


@wrong("mended_training", "bytes", "What begins alike, and adds the same gradients, stays alike")
def broadcasts_in_every_step(model, loader, epochs):
    return training(model, loader, epochs, every_step=True)


@wrong("mended_training", "runs", "the model is never called")
def does_not_train(model, loader, epochs):
    return 0.0


@wrong("mended_training", "waits", "rank 0 does not wait for 1 collective")
def does_not_wait_for_the_loss(model, loader, epochs):
    dist.all_reduce(torch.zeros(1), async_op=True)
    return training(model, loader, epochs)


@wrong("mended_training", "own work", "you call torch's DistributedDataParallel")
def lets_ddp_mend_it(model, loader, epochs):
    DistributedDataParallel(model)
    return training(model, loader, epochs)


@wrong("mended_training", "epochs", "The sampler is told the number of the epoch too late: it shuffles when the loop")
def sets_the_epoch_at_its_end(model, loader, epochs):
    return training(model, loader, epochs, set_epoch="late")


# predict_traffic


def predicted(parameters, p, inputs, outputs, dp_sent=None, dp_received=None, ddp_sent=None, ddp_received=None):
    """A right one, but for what is given."""
    sent = (p - 1) * (parameters + inputs / p + outputs / p) if dp_sent is None else dp_sent
    received = (p - 1) * (parameters + outputs / p) if dp_received is None else dp_received
    ring = 2 * (p - 1) / p * parameters
    return {
        "DP": (sent, received),
        "DDP": (ring if ddp_sent is None else ddp_sent, ring if ddp_received is None else ddp_received),
    }


@wrong("predict_traffic", "runs", "it returned None")
def predicts_nothing(parameters, ranks, inputs, outputs):
    pass


@wrong("predict_traffic", "runs", "bytes are plain numbers")
def predicts_words(parameters, ranks, inputs, outputs):
    return {"DP": ("much", "much"), "DDP": ("less", "less")}


@wrong("predict_traffic", "runs", "bytes are plain numbers")
def equal_to_no_number(parameters, ranks, inputs, outputs):
    return {"DP": (float("nan"), float("nan")), "DDP": (float("nan"), float("nan"))}


@wrong("predict_traffic", "DP", "They are in the other direction: the order is (sent, received).")
def received_and_sent(parameters, ranks, inputs, outputs):
    right = predicted(parameters, ranks, inputs, outputs)
    return right | {"DP": right["DP"][::-1]}


@wrong("predict_traffic", "runs", "KeyError: (96, 2, 96, 72)")
def hard_coded(parameters, ranks, inputs, outputs):
    known = {(48, 1, 96, 72): (0, 0, 0, 0), (48, 2, 96, 72): (132, 84, 48, 48)}
    dp, ddp = known[parameters, ranks, inputs, outputs][:2], known[parameters, ranks, inputs, outputs][2:]
    return {"DP": dp, "DDP": ddp}


@wrong("predict_traffic", "DP", "The parameters are missing: the replicas of a step are made anew")
def always_zero(parameters, ranks, inputs, outputs):
    return {"DP": (0, 0), "DDP": (0, 0)}


@wrong("predict_traffic", "DP", "The inputs are missing: the whole batch is on the root")
def forgets_the_rows(parameters, ranks, inputs, outputs):
    p = ranks
    return predicted(parameters, p, inputs, outputs, dp_sent=(p - 1) * (parameters + outputs / p))


@wrong("predict_traffic", "DP", "The outputs are missing: backward starts at the loss")
def forgets_the_outputs_gradient(parameters, ranks, inputs, outputs):
    p = ranks
    return predicted(parameters, p, inputs, outputs, dp_sent=(p - 1) * (parameters + inputs / p))


@wrong(
    "predict_traffic",
    "DP",
    "The inputs are counted too often: which part of the batch goes to each rank, and which stays",
)
def whole_batch_to_each(parameters, ranks, inputs, outputs):
    p = ranks
    return predicted(parameters, p, inputs, outputs, dp_sent=(p - 1) * (parameters + inputs + outputs / p))


@wrong(
    "predict_traffic",
    "DP",
    "The parameters are counted too often: to how many replicas does the root send the whole model,",
)
def a_replica_for_the_root_too(parameters, ranks, inputs, outputs):
    p = ranks
    sent = p * parameters + (p - 1) / p * (inputs + outputs) if p > 1 else 0
    return predicted(parameters, p, inputs, outputs, dp_sent=sent)


@wrong(
    "predict_traffic", "DP", "The parameters are counted too seldom (in a chain they would leave the root once): to how"
)
def right_on_two_ranks(parameters, ranks, inputs, outputs):
    sent = (parameters + inputs / 2 + outputs / 2) * (ranks > 1)
    return predicted(parameters, ranks, inputs, outputs, dp_sent=sent)


@wrong("predict_traffic", "DP", "The inputs do not belong in it: rows go to the other ranks, and nothing comes back")
def inputs_have_gradients(parameters, ranks, inputs, outputs):
    p = ranks
    received = (p - 1) * (parameters + inputs / p + outputs / p)
    return predicted(parameters, p, inputs, outputs, dp_received=received)


@wrong("predict_traffic", "DP", "The parameters are missing: the optimizer is on the root")
def forgets_the_gradients(parameters, ranks, inputs, outputs):
    p = ranks
    return predicted(parameters, p, inputs, outputs, dp_received=(p - 1) / p * outputs)


@wrong(
    "predict_traffic",
    "DP",
    "what the root of DP receives besides parameters, inputs and outputs is 4, and that is not right",
)
def and_a_number_more(parameters, ranks, inputs, outputs):
    p = ranks
    received = (p - 1) * (parameters + outputs / p) + 4 * (p > 1)
    return predicted(parameters, p, inputs, outputs, dp_received=received)


@wrong(
    "predict_traffic",
    "DDP",
    "The gradients go through an all-reduce on a ring, in p parts: how many of them does a rank",
)
def all_of_it_twice(parameters, ranks, inputs, outputs):
    return predicted(parameters, ranks, inputs, outputs, ddp_sent=2 * parameters)


@wrong(
    "predict_traffic",
    "DDP",
    "The gradients go through an all-reduce on a ring, in p parts: how many of them does a rank",
)
def ddp_as_a_star(parameters, ranks, inputs, outputs):
    return predicted(parameters, ranks, inputs, outputs, ddp_sent=2 * (ranks - 1) * parameters)


@wrong("predict_traffic", "DDP", "The outputs do not belong in it: every rank computes the loss of its own rows")
def ddp_gathers_outputs(parameters, ranks, inputs, outputs):
    received = 2 * (ranks - 1) / ranks * parameters + (ranks - 1) / ranks * outputs
    return predicted(parameters, ranks, inputs, outputs, ddp_received=received)


@wrong("predict_traffic", "runs", "RuntimeError: launch: this is rank 0 already; nested launch() is not supported")
def measures(parameters, ranks, inputs, outputs):
    tinydist.launch(dist.barrier, ranks)
    return predicted(parameters, ranks, inputs, outputs)


@wrong("overlap", "values", "it may be an old one, made zero in place")
def asks_whether_there_is_a_gradient(buckets):
    p = dist.get_world_size()
    missing = [set(bucket) for bucket in buckets]
    started = []

    def ready(parameter):
        for names in missing:
            names.discard(parameter)
        while (
            len(started) < len(buckets)
            and buckets[len(started)][0] not in missing[len(started)]
            and all(e.grad is not None for e in buckets[len(started)])
        ):
            bucket = buckets[len(started)]
            flat = torch.cat([each.grad.flatten() for each in bucket])
            started.append((flat, dist.all_reduce(flat, async_op=True)))

    def finish():
        for bucket, (flat, work) in zip(buckets, started):
            work.wait()
            for each, numbers in zip(bucket, flat.split([each.numel() for each in bucket])):
                each.grad.copy_(numbers.view_as(each) / p)
        started.clear()
        missing[:] = [set(bucket) for bucket in buckets]

    for bucket in buckets:
        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(ready)
    return finish


@wrong("overlap", "collectives", "are the numbers sent in a smaller dtype?")
def buckets_of_float32(buckets):
    p = dist.get_world_size()
    missing = [set(bucket) for bucket in buckets]
    started = []

    def ready(parameter):
        for names in missing:
            names.discard(parameter)
        while len(started) < len(buckets) and not missing[len(started)]:
            bucket = buckets[len(started)]
            flat = torch.cat([each.grad.flatten() for each in bucket]).float()
            started.append((flat, dist.all_reduce(flat, async_op=True)))

    def finish():
        for bucket, (flat, work) in zip(buckets, started):
            work.wait()
            for each, numbers in zip(bucket, flat.split([each.numel() for each in bucket])):
                each.grad.copy_(numbers.view_as(each) / p)
        started.clear()
        missing[:] = [set(bucket) for bucket in buckets]

    for bucket in buckets:
        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(ready)
    return finish


@wrong("mended_training", "buffers", "0.shift of the buffers at the start is")
def a_buffer_of_one_number(model, loader, epochs):
    p = dist.get_world_size()
    for tensor in [*model.parameters(), *(b for b in model.buffers() if b.numel() > 1)]:
        dist.broadcast(tensor.data, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(inputs), targets)
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= p
            optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean.item() / p


@wrong("mended_training", "parameters", "those of rank 0 are to be kept")
def the_mean_of_all_first_models(model, loader, epochs):
    p = dist.get_world_size()
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.all_reduce(tensor.data)
        tensor.data.div_(p)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(inputs), targets)
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= p
            optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean.item() / p


@wrong("average_gradients", "values", "should take its place")
def adds_the_mean(parameters, samples):
    parameters = list(parameters)
    parts = []
    for parameter in parameters:
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        parts.append((gradient * samples).flatten())
    parts.append(torch.tensor([float(samples)]))
    flat = torch.cat(parts)
    dist.all_reduce(flat)
    total, at = flat[-1], 0
    for parameter in parameters:
        mean = (flat[at : at + parameter.numel()] / total).view_as(parameter)
        parameter.grad = mean if parameter.grad is None else parameter.grad + mean
        at += parameter.numel()
