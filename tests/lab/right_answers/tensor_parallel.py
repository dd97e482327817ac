"""Other right answers to the exercises of 07_tensor_parallel: they must pass."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import others
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

RIGHT_ANSWERS, right = others()


def total(x, group=None):
    x = x.clone()
    dist.all_reduce(x, group=group)
    return x


# f_and_g


@right("f_and_g")
def one_product_for_all(group):
    """The weights below one another, and so one product forward, and one for the gradient of x."""

    class Entering(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *weights):
            fused = torch.cat(weights)
            ctx.save_for_backward(x, fused)
            ctx.rows = [len(weight) for weight in weights]
            return (x @ fused.T).split(ctx.rows, 1)

        @staticmethod
        def backward(ctx, *gradients):
            x, fused = ctx.saved_tensors
            gradient = torch.cat(gradients, 1)
            work = dist.all_reduce(of_x := gradient @ fused, group=group, async_op=True)
            of_weights = gradient.T @ x
            work.wait()
            return of_x, *of_weights.split(ctx.rows)

    class Leaving(torch.autograd.Function):
        forward = staticmethod(lambda ctx, summand: total(summand, group))
        backward = staticmethod(lambda ctx, gradient: gradient)

    return Entering.apply, Leaving.apply


@right("f_and_g")
def others_add_a_constant(group):
    """g: what has no gradient is added."""

    class Entering(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            x, *weights = inputs
            return tuple(torch.nn.functional.linear(x, weight) for weight in weights)

        @staticmethod
        def backward(ctx, *gradients):
            x, first, *others = ctx.saved_tensors
            of_x = gradients[0] @ first
            for gradient, weight in zip(gradients[1:], others):
                of_x.addmm_(gradient, weight)
            work = dist.all_reduce(of_x, group=group, async_op=True)
            of_weights = tuple(gradient.mT.mm(x) for gradient in gradients)
            work.wait()
            return of_x, *of_weights

    def g(x):
        return x + (total(x.detach(), group) - x.detach())

    return Entering.apply, g


# row_linear


@right("row_linear")
def the_whole_product_as_a_function(x, weight, bias):
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            ctx.save_for_backward(x, weight)
            return total(x @ weight.T) + bias

        @staticmethod
        def backward(ctx, gradient):
            x, weight = ctx.saved_tensors
            return gradient @ weight, gradient.T @ x, gradient.sum(0)

    return Product.apply(x, weight, bias)


@right("row_linear")
def what_others_have_is_a_constant(x, weight, bias):
    summand = F.linear(x, weight)
    others = total(summand.detach()) - summand.detach()
    return summand + others + bias


@right("row_linear")
def in_place(x, weight, bias):
    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, summand):
            ctx.mark_dirty(summand)
            dist.all_reduce(summand)
            return summand

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    y = Sum.apply(F.linear(x, weight))
    return y.add(bias)


# vocabulary_loss


def own(logits, targets):
    """Rows of this rank's part, and which of them are here."""
    rows = targets - dist.get_rank() * logits.shape[1]
    return rows, (rows >= 0) & (rows < logits.shape[1])


@right("vocabulary_loss")
def softmax_is_kept(logits, targets):
    """In place of the logits: as many bytes, and nothing to compute again."""

    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits):
            largest = logits.amax(1, keepdim=True)
            dist.all_reduce(largest, dist.ReduceOp.MAX)
            rows, here = own(logits, targets)
            target = logits.new_zeros(len(targets))
            target[here] = logits[here, rows[here]]
            softmax = (logits - largest).exp_()
            of_all = softmax.sum(1)
            dist.all_reduce(of_all)
            dist.all_reduce(target)
            softmax /= of_all[:, None]
            softmax[here, rows[here]] -= 1
            ctx.save_for_backward(softmax)
            return (of_all.log() + largest[:, 0] - target).mean()

        @staticmethod
        def backward(ctx, gradient):
            (softmax,) = ctx.saved_tensors
            return softmax * (gradient / len(softmax))

    return Loss.apply(logits)


@right("vocabulary_loss")
def with_log_sum_exp(logits, targets):
    """The sums of exponentials of the ranks, each in its logarithm."""

    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits):
            largest = logits.amax(1)
            dist.all_reduce(largest, dist.ReduceOp.MAX)
            rows, here = own(logits, targets)
            mine = logits.logsumexp(1)
            target = torch.zeros_like(mine)
            target[here] = logits[here, rows[here]]
            both = torch.cat([(mine - largest).exp(), target])
            dist.all_reduce(both)
            of_all, target = both.chunk(2)
            log_sum = of_all.log() + largest
            ctx.save_for_backward(logits, log_sum)
            return (log_sum - target).sum() / len(targets)

        @staticmethod
        def backward(ctx, gradient):
            logits, log_sum = ctx.saved_tensors
            rows, here = own(logits, targets)
            of_logits = logits.sub(log_sum[:, None]).exp_()
            of_logits[here, rows[here]] -= 1
            return of_logits.mul_(gradient).div_(len(targets))

    return Loss.apply(logits)


@right("vocabulary_loss")
def the_gradient_in_forward(logits, targets):
    """A loss of which the gradient is known at once: a sum of products with constants has it."""
    with torch.no_grad():
        largest = logits.amax(1)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        rows, here = own(logits, targets)
        of_logits = (logits - largest[:, None]).exp_()
        target = logits.new_zeros(len(targets))
        target[here] = logits[here, rows[here]]
        sums = torch.stack([of_logits.sum(1), target])
        dist.all_reduce(sums)
        loss = (sums[0].log() + largest - sums[1]).mean()
        of_logits /= sums[0][:, None]
        of_logits[here, rows[here]] -= 1
        of_logits /= len(targets)

    class Known(torch.autograd.Function):
        forward = staticmethod(lambda ctx, logits: loss.clone())
        backward = staticmethod(lambda ctx, gradient: of_logits * gradient)

    return Known.apply(logits)


# copied_heads


def own_rows(weight, kv_heads):
    """Head by head: those that a query of this rank reads."""
    rank, t = dist.get_rank(), dist.get_world_size()
    heads = list(weight.unflatten(0, (kv_heads, -1)))
    queries = range(rank * kv_heads, (rank + 1) * kv_heads)  # as if there were t G of them
    return torch.cat([heads[head] for head in sorted({query // t for query in queries})])


@right("copied_heads")
def with_a_mesh(weight, kv_heads):
    """Heads one way, their copies the other."""
    heads = min(kv_heads, dist.get_world_size())
    mesh = init_device_mesh("cpu", (heads, dist.get_world_size() // heads))
    part = nn.Parameter(own_rows(weight, kv_heads))
    part.register_hook(lambda gradient: total(gradient, mesh.get_group(1)))
    return part


@right("copied_heads")
def before_it_is_accumulated(weight, kv_heads):
    """A hook of the node that accumulates, as torch's DDP has it."""
    group, _ = dist.new_subgroups(max(1, dist.get_world_size() // kv_heads))
    part = own_rows(weight, kv_heads).requires_grad_()
    part.accumulates = part.expand_as(part).grad_fn.next_functions[0][0]
    part.accumulates.register_prehook(lambda gradients: (total(gradients[0], group),))
    return part


@right("copied_heads")
def in_place_and_in_the_background(weight, kv_heads):
    t, rank = dist.get_world_size(), dist.get_rank()
    copies = max(1, t // kv_heads)
    groups = [dist.new_group(list(range(first, first + copies))) for first in range(0, t, copies)]
    part = own_rows(weight, kv_heads).requires_grad_()

    def add_up(gradient):
        gradient = gradient.contiguous()
        work = dist.all_reduce(gradient, group=groups[rank // copies], async_op=True)
        work.wait()
        return gradient

    part.register_hook(add_up)
    return part
