"""Other right answers to the exercises of 06_zero: they must pass."""

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
            pieces = [piece.contiguous() for piece in parameter.grad.flatten().chunk(p)]
            parts[number] = torch.empty_like(pieces[0])
            dist.reduce_scatter(parts[number], pieces)
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
            travelling.pop()[1].wait()

    def ready(parameter):
        arrive()
        flat = parameter.grad.view(-1)
        flat /= p
        parameter.grad = None
        parts[parameter] = flat.new_empty(len(flat) // p)
        travelling.append((flat, dist.reduce_scatter_tensor(parts[parameter], flat, async_op=True)))

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
        arrived = torch.empty_like(parameter.grad)
        dist.all_to_all_single(arrived.view(-1), parameter.grad.view(-1))
        number = next(i for i, each in enumerate(layers) if each is parameter)
        parts[number] = arrived.view(p, -1).sum(0) / p
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
