"""Other right answers to the exercises of 06_zero: they must pass."""

from itertools import pairwise

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import others

RIGHT_ANSWERS, right = others()


# sharded_adam


@right("sharded_adam")
def with_lists_of_parts(weights, adam):
    p, rank = dist.get_world_size(), dist.get_rank()
    k = -(-len(weights) // p)
    mine = weights.new_zeros(k)
    own = weights[rank * k : (rank + 1) * k]
    mine[: len(own)] = own
    optimizer = adam([mine])

    def step(gradient):
        row = torch.cat([gradient, gradient.new_zeros(p * k - len(gradient))]) / p
        mine.grad = torch.zeros_like(mine)
        dist.reduce_scatter(mine.grad, list(row.split(k)))
        optimizer.step()
        parts = [torch.empty_like(mine) for _ in range(p)]
        dist.all_gather(parts, mine)
        weights.copy_(torch.cat(parts)[: len(weights)])

    return step


@right("sharded_adam")
def all_parts_to_their_ranks(weights, adam):
    """An all-to-all, and a sum: as many bytes as a reduce-scatter."""
    p, rank = dist.get_world_size(), dist.get_rank()
    padding = -len(weights) % p
    shard = torch.nn.Parameter(F.pad(weights, (0, padding)).view(p, -1)[rank].clone())
    optimizer = adam([shard])

    def step(gradient):
        mine = F.pad(gradient, (0, padding))
        arrived = torch.empty_like(mine)
        dist.all_to_all_single(arrived, mine)
        shard.grad = arrived.view(p, -1).mean(0)
        optimizer.step()
        optimizer.zero_grad()
        dist.all_gather_into_tensor(arrived, shard.detach())
        weights[:] = arrived[: len(weights)]

    return step


@right("sharded_adam")
def nothing_blocks_until_it_is_needed(weights, adam):
    p, rank = dist.get_world_size(), dist.get_rank()
    k = (len(weights) + p - 1) // p
    shard = F.pad(weights, (0, p * k - len(weights)))[rank * k :][:k].clone()
    optimizer = adam([shard])

    def step(gradient):
        mean = gradient.new_empty(k)
        work = dist.reduce_scatter_tensor(mean, F.pad(gradient, (0, p * k - len(weights))), async_op=True)
        work.wait()
        shard.grad = mean.div_(p)
        optimizer.step()
        shard.grad = None
        row = weights.new_empty(p, k)
        work = dist.all_gather_into_tensor(row, shard, async_op=True)
        work.wait()
        weights.copy_(row.flatten()[: len(weights)])

    return step


# shard_gradients


@right("shard_gradients")
def with_lists_of_chunks(layers):
    p, parts = dist.get_world_size(), {}

    def hook(number):
        def ready(parameter):
            pieces = [piece.float() for piece in parameter.grad.flatten().chunk(p)]
            part = torch.empty_like(pieces[0])
            dist.reduce_scatter(part, pieces)
            parts[number] = parts.get(number, 0) + part
            parameter.grad = None

        return ready

    def collect():
        found = [parts[number] / p for number in range(len(layers))]
        parts.clear()
        return found

    for number, parameter in enumerate(layers):
        parameter.register_post_accumulate_grad_hook(hook(number))
    return collect


@right("shard_gradients")
def waits_for_the_layer_before(layers):
    """One reduce-scatter is on its way while the next gradient is computed."""
    p, parts, travelling = dist.get_world_size(), {}, []

    def arrive():
        while travelling:
            parameter, part, work, _ = travelling.pop()
            work.wait()
            parts[parameter] = part if parameter not in parts else parts[parameter] + part

    def ready(parameter):
        arrive()
        flat = parameter.grad.view(-1).float()
        flat /= p
        parameter.grad = None
        part = flat.new_empty(len(flat) // p)
        travelling.append((parameter, part, dist.reduce_scatter_tensor(part, flat, async_op=True), flat))

    def collect():
        arrive()
        return [parts.pop(parameter) for parameter in layers]

    for parameter in layers:
        parameter.register_post_accumulate_grad_hook(ready)
    return collect


@right("shard_gradients")
def all_parts_are_exchanged(layers):
    """All-to-all, and a sum: as many bytes as a reduce-scatter."""
    p, parts = dist.get_world_size(), [None] * len(layers)

    def ready(parameter):
        arrived = torch.empty(parameter.numel())
        dist.all_to_all_single(arrived, parameter.grad.float().view(-1))
        number = next(i for i, each in enumerate(layers) if each is parameter)
        part = arrived.view(p, -1).sum(0) / p
        parts[number] = part if parts[number] is None else parts[number] + part
        parameter.grad = None

    def collect():
        found = list(parts)
        parts[:] = [None] * len(layers)
        return found

    for parameter in layers:
        parameter.register_post_accumulate_grad_hook(ready)
    return collect


# sharded_linear


@right("sharded_linear")
def in_functions_of_their_own(x, shard, rows):
    """The gather has a backward, and a saved-tensor hook leaves the weight to be gathered again."""
    p = dist.get_world_size()

    def whole(part):
        parts = [torch.empty_like(part) for _ in range(p)]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts).reshape(rows, -1)

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, part):
            return whole(part)

        @staticmethod
        def backward(ctx, grad):
            mine = torch.empty_like(shard)
            dist.reduce_scatter(mine, list((grad / p).flatten().chunk(p)))
            return mine

    def pack(tensor):
        return tensor.stride() == stride if tensor.untyped_storage().data_ptr() == place else tensor

    def unpack(kept):
        if isinstance(kept, torch.Tensor):
            return kept
        again = whole(shard.detach())
        return again if kept else again.T

    weight = Gather.apply(shard)
    place, stride = weight.untyped_storage().data_ptr(), weight.stride()
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return x @ weight.T


@right("sharded_linear")
def asynchronously(x, shard, rows):
    p = dist.get_world_size()

    class Layer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, part):
            ctx.x, ctx.part = x, part
            row = torch.empty(p, len(part), dtype=part.dtype)
            dist.all_gather_into_tensor(row, part, async_op=True).wait()
            return torch.nn.functional.linear(x, row.view(rows, x.shape[1]))

        @staticmethod
        def backward(ctx, grad):
            row = torch.empty(p, len(ctx.part), dtype=ctx.part.dtype)
            gathering = dist.all_gather_into_tensor(row, ctx.part, async_op=True)
            whole = torch.einsum("br,bc->rc", grad, ctx.x).div_(p)
            mine = torch.empty_like(ctx.part)
            reducing = dist.reduce_scatter_tensor(mine, whole.view(-1), async_op=True)
            gathering.wait()
            of_x = grad.mm(row.view(rows, -1))
            reducing.wait()
            return of_x, mine

    return Layer.apply(x, shard)


@right("sharded_linear")
def parts_of_the_product(x, shard, rows):
    """Gradients are exchanged, and each rank adds up its own part."""
    p = dist.get_world_size()

    def gather(part):
        parts = part.new_empty(p, part.numel())
        dist.all_gather(list(parts), part)
        return parts.view(rows, -1)

    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(x, part):
            return x.matmul(gather(part).t())

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            x, part = ctx.saved_tensors
            of_x = grad.matmul(gather(part))
            product = (grad.t() @ x).view(p, -1)
            arrived = torch.empty_like(product)
            dist.all_to_all_single(arrived, product)
            return of_x, arrived.sum(0).div(p)

    return Linear.apply(x, shard)


# mended_fsdp


def cut(whole):
    """This rank's part, and no view of the whole."""
    return whole.view(dist.get_world_size(), -1)[dist.get_rank()].clone()


@right("mended_fsdp")
def norms_are_gathered(checkpoint, batches, max_norm):
    """In one collective, a number from each rank; and all that changes is a new tensor."""
    p, width = dist.get_world_size(), checkpoint.width

    def whole(shard):
        parts = [torch.empty_like(shard) for _ in range(p)]
        dist.all_gather(parts, shard)
        return torch.cat(parts).view(width, width)

    shards = [cut(checkpoint.weight(layer)) for layer in range(checkpoint.layers)]
    momenta = [cut(checkpoint.momentum(layer)) for layer in range(checkpoint.layers)]
    for inputs, targets in batches:
        outputs = [inputs]
        for shard in shards:
            outputs.append(torch.tanh(outputs[-1] @ whole(shard)))
        grad = 2 * (outputs[-1] - targets) / targets.numel()
        gradients = {}
        for layer in reversed(range(len(shards))):
            grad = grad * (1 - outputs[layer + 1] ** 2)
            gradients[layer] = torch.empty_like(shards[layer])
            dist.reduce_scatter(gradients[layer], list((outputs[layer].T @ grad).view(p, -1)))
            gradients[layer] /= p
            grad = grad @ whole(shards[layer]).T
        mine = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()[None]
        norms = torch.empty(p)
        dist.all_gather_into_tensor(norms, mine)
        norm = norms.norm()
        if norm > max_norm:
            gradients = {layer: gradient * (max_norm / norm) for layer, gradient in gradients.items()}
        momenta = [0.9 * momentum + gradients[layer] for layer, momentum in enumerate(momenta)]
        shards = [shard - 0.1 * momentum for shard, momentum in zip(shards, momenta)]
    return shards


@right("mended_fsdp")
def layers_by_autograd(checkpoint, batches, max_norm):
    """Each layer is computed again in backward, from a weight that is gathered again; torch's SGD steps."""
    p, width = dist.get_world_size(), checkpoint.width

    def whole(shard):
        row = torch.empty(p, shard.numel())
        dist.all_gather_into_tensor(row, shard.detach(), async_op=True).wait()
        return row.view(width, width)

    shards = [torch.nn.Parameter(cut(checkpoint.weight(layer))) for layer in range(checkpoint.layers)]
    optimizer = torch.optim.SGD(shards, lr=0.1, momentum=0.9)
    for layer, shard in enumerate(shards):
        optimizer.state[shard]["momentum_buffer"] = cut(checkpoint.momentum(layer))
    for inputs, targets in batches:
        xs = [inputs]
        with torch.no_grad():
            for shard in shards:
                xs.append((xs[-1] @ whole(shard)).tanh())
        grad = 2 * (xs.pop() - targets) / targets.numel()
        for shard in reversed(shards):
            x, weight = xs.pop().requires_grad_(), whole(shard).requires_grad_()
            grad, of_weight = torch.autograd.grad((x @ weight).tanh(), [x, weight], grad)
            shard.grad = torch.empty_like(shard)
            dist.reduce_scatter_tensor(shard.grad, of_weight.view(-1))
            shard.grad /= p
            del x, weight, of_weight
        square = sum((shard.grad**2).sum() for shard in shards).double()
        dist.all_reduce(square)
        for shard in shards:
            shard.grad *= min(1.0, max_norm / square.sqrt().item())
        optimizer.step()
        optimizer.zero_grad()
    return tuple(shard.data for shard in shards)


@right("mended_fsdp")
def parts_of_gradients_are_exchanged(checkpoint, batches, max_norm):
    p, width = dist.get_world_size(), checkpoint.width

    def gather(shard):
        row = torch.empty(width * width)
        dist.all_gather_single(row, shard)
        return row.reshape(width, -1)

    def mean(gradient):
        arrived = torch.empty(p, gradient.numel() // p)
        dist.all_to_all_single(arrived, gradient.view(p, -1))
        return arrived.mean(0)

    layers = range(checkpoint.layers)
    shards, momenta = ([cut(read(layer)) for layer in layers] for read in (checkpoint.weight, checkpoint.momentum))
    for inputs, targets in batches:
        ys = [inputs]
        for layer in layers:
            ys += [torch.tanh(torch.mm(ys[layer], gather(shards[layer])))]
        grad, gradients = (ys[-1] - targets).mul(2 / targets.numel()), [None] * len(layers)
        for layer in layers[::-1]:
            grad = grad * (1 - ys[layer + 1].square())
            gradients[layer] = mean(ys[layer].T @ grad)
            grad = grad @ gather(shards[layer]).T
        total = torch.cat(gradients).square().sum()
        dist.all_reduce(total)
        factor = torch.clamp(max_norm / total.sqrt(), max=1)
        for layer in layers:
            momenta[layer] *= 0.9
            momenta[layer] += factor * gradients[layer]
            shards[layer] -= 0.1 * momenta[layer]
    return shards


# predicted_fsdp


@right("predicted_fsdp")
def by_the_order_of_a_step(layers, ranks, reduce_bytes):
    """What is whole, moment by moment."""
    padded = [ranks * ((numbers + ranks - 1) // ranks) for numbers in layers]
    rest = sum(padded) * 2 // ranks
    order = [*range(len(padded)), *reversed(range(len(padded)))]
    ahead = [{now, following} for now, following in pairwise(order)]
    one_pass = sum(padded) * (ranks - 1) / ranks
    return {
        "rest": rest,
        "in turns": rest + 2 * max(padded),
        "prefetch": rest + max(2 * sum(padded[layer] for layer in moment) for moment in ahead),
        "kept": rest + 2 * sum(padded),
        "sent": (2 + 2 + reduce_bytes) * one_pass,
        "sent if kept": (2 + reduce_bytes) * one_pass,
    }
