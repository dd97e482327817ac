"""Other right answers to the exercises of 05_data_parallel: they must pass."""

import itertools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import others
from torch.nn.utils import parameters_to_vector, vector_to_parameters

RIGHT_ANSWERS, right = others()


# average_gradients


def weighted(parameters, samples):
    """Flat, with the number of samples at the end; zeros where there is no gradient."""
    sums = [torch.zeros_like(p) if p.grad is None else p.grad * samples for p in parameters]
    return torch.cat([*map(torch.flatten, sums), torch.full((1,), float(samples), dtype=sums[0].dtype)])


def new_gradients(parameters, flat):
    for parameter, mean in zip(parameters, flat.split([p.numel() for p in parameters])):
        parameter.grad = mean.view_as(parameter)


@right("average_gradients")
def samples_first(parameters, samples):
    flat = weighted(parameters, samples).roll(1)
    dist.all_reduce(flat)
    new_gradients(parameters, flat[1:] / flat[0])


@right("average_gradients")
def scaled_and_asynchronously(parameters, samples):
    flat = weighted(parameters, samples) * 0.1
    work = dist.all_reduce(flat, async_op=True)
    work.wait()
    new_gradients(parameters, flat[:-1] / flat[-1])


@right("average_gradients")
def with_the_vectors_of_torch(parameters, samples):
    with torch.no_grad():
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([parameters_to_vector(gradients) * samples, parameters[0].new_tensor([samples])])
        dist.all_reduce(flat)
        vector_to_parameters(flat[:-1] / flat[-1], gradients)
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient


# overlap


@right("overlap")
def by_counting(buckets):
    """How many gradients of each bucket are still to come; hooks that know their bucket."""
    left, works, flats = [len(bucket) for bucket in buckets], [], []

    def start_the_full():
        while len(works) < len(buckets) and left[len(works)] == 0:
            works.append(dist.all_reduce(flats[len(works)], async_op=True))

    def hook_of(number):
        def hook(parameter):
            left[number] -= 1
            start_the_full()

        return hook

    def finish():
        left[:] = [0] * len(buckets)
        start_the_full()
        for flat, work in zip(flats, works):
            work.wait()
            flat.div_(dist.get_world_size())
        left[:] = [len(bucket) for bucket in buckets]
        works.clear()

    for number, bucket in enumerate(buckets):
        flats.append(bucket[0].new_zeros(sum(each.numel() for each in bucket)))
        new_gradients(bucket, flats[-1])
        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(hook_of(number))
    return finish


@right("overlap")
def divided_before_it_travels(buckets):
    p, there, travelling, flats = dist.get_world_size(), set(), [], []
    for bucket in buckets:
        flats.append(parameters_to_vector([torch.zeros_like(each) for each in bucket]))
        new_gradients(bucket, flats[-1])

    def ready(*arrived):
        there.update(arrived)
        for bucket, flat in [*zip(buckets, flats)][len(travelling) :]:
            if not there.issuperset(bucket):
                return
            travelling.append(dist.all_reduce(flat.div_(p), async_op=True))

    def finish():
        ready(*itertools.chain(*buckets))
        for work in travelling:
            work.wait()
        travelling.clear(), there.clear()

    for each in itertools.chain(*buckets):
        each.register_post_accumulate_grad_hook(ready)
    return finish


@right("overlap")
def by_the_mean_of_the_all_reduce(buckets):
    class Overlapped:
        def __init__(self):
            self.flats = [torch.zeros(sum(p.numel() for p in each), dtype=each[0].dtype) for each in buckets]
            for bucket, flat in zip(buckets, self.flats):
                at = 0
                for each in bucket:
                    each.grad = flat[at : at + each.numel()].reshape(each.shape)
                    at += each.numel()
                    each.register_post_accumulate_grad_hook(self.ready)
            self.begin_anew()

        def begin_anew(self):
            self.waiting, self.works = [list(map(id, bucket)) for bucket in buckets], []

        def ready(self, parameter):
            for each in self.waiting:
                if id(parameter) in each:
                    each.remove(id(parameter))
            while len(self.works) < len(buckets) and not self.waiting[len(self.works)]:
                flat = self.flats[len(self.works)]
                self.works.append(dist.all_reduce(flat, op=dist.ReduceOp.AVG, async_op=True))

        def finish(self):
            for each in [parameter for bucket in buckets for parameter in bucket]:
                self.ready(each)
            for work in self.works:
                work.wait()
            self.begin_anew()

    return Overlapped().finish


@right("mended_training")
def with_data_and_mean(model, loader, epochs):
    p = dist.get_world_size()
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
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
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        print(mean.item())
    return float(mean)


@right("mended_training")
def in_one_row(model, loader, epochs):
    """State and gradients each travel in one row."""
    tensors, parameters = [*model.parameters(), *model.buffers()], list(model.parameters())
    state = torch.cat([tensor.detach().flatten() for tensor in tensors])
    dist.broadcast(state, 0)
    for tensor, part in zip(tensors, state.split([tensor.numel() for tensor in tensors])):
        tensor.data = part.view_as(tensor)
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = F.mse_loss(model(inputs), targets)
            gradients = torch.autograd.grad(loss, parameters)
            flat = parameters_to_vector(gradients)
            dist.all_reduce(flat)
            new_gradients(parameters, flat / dist.get_world_size())
            optimizer.step()
    losses = [torch.zeros_like(loss) for _ in range(dist.get_world_size())]
    dist.all_gather(losses, loss.detach())
    return torch.stack(losses).mean().item()


@right("mended_training")
def buffers_first(model, loader, epochs):
    for buffer in model.buffers():
        dist.broadcast(buffer, 0)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad(set_to_none=False)
            loss = F.mse_loss(model(inputs), targets)
            loss.backward()
            works = [dist.all_reduce(parameter.grad, async_op=True) for parameter in model.parameters()]
            for work, parameter in zip(works, model.parameters()):
                work.wait()
                parameter.grad.div_(dist.get_world_size())
            optimizer.step()
    last = torch.tensor([loss.item()])
    dist.all_reduce(last)
    return (last / dist.get_world_size()).item()


# predict_traffic


@right("predict_traffic")
def rank_by_rank(parameters, trained, ranks, microbatches, inputs, outputs):
    sent = received = reduced = 0
    for _ in range(1, ranks):
        for _ in range(microbatches):
            sent += parameters + (inputs + outputs) / ranks / microbatches
            received += trained + outputs / ranks / microbatches
        reduced += 2 * trained / ranks
    return {"DP": [sent, received], "DDP": [reduced, reduced]}


@right("predict_traffic")
def by_shares(parameters, trained, ranks, microbatches, inputs, outputs):
    away, times = 1 - 1 / ranks, (ranks - 1) * microbatches  # of the batch; that the model is lent
    dp = times * parameters + away * (inputs + outputs), times * trained + away * outputs
    return dict(DP=dp, DDP=(2 * away * trained,) * 2)


# best_buckets


@right("best_buckets")
def from_the_last_cut_on(backward, nbytes, latency, bandwidth):
    """The earliest end for the first layers, whatever follows: dynamic programming."""
    ends, counts = [0.0], [[]]
    for layer in range(1, len(backward) + 1):
        full = sum(backward[:layer])
        found = []
        for start in range(layer):
            end = max(full, ends[start]) + latency + sum(nbytes[start:layer]) / bandwidth
            found.append((end, [*counts[start], layer - start]))
        end, best = min(found)
        ends.append(end)
        counts.append(best)
    return tuple(counts[-1])
