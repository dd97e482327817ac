"""Wrong answers to the exercises of 07_tensor_parallel: each with the property that rejects it, and what it is told."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import collection, solved

from tinydist.collectives import autograd

WRONG_ANSWERS, wrong = collection()
SEEN = {}


class Two(torch.autograd.Function):
    """``there(x)`` forward, ``back(gradient)`` backward."""

    @staticmethod
    def forward(ctx, x, there, back):
        ctx.back = back
        return there(x)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.back(gradient), None, None


def same(x):
    return x.view_as(x)


def total(x, group=None):
    x = x.clone()
    dist.all_reduce(x, group=group)
    return x


def hooked(group):
    """An f whose input's gradient is summed by a hook."""

    def f(x, *weights):
        x = x.view_as(x)
        x.register_hook(lambda gradient: total(gradient, group))
        return tuple(x @ weight.T for weight in weights)

    return f


# f_and_g


@wrong("f_and_g", "runs", "Autograd does not see a collective")
def a_hook_and_a_bare_all_reduce(group):
    """Its numbers are right: on gloo PyTorch only warns."""

    def g(summand):
        summed = summand.clone()
        dist.all_reduce(summed, group=group)
        return summed

    return hooked(group), g


@wrong("f_and_g", "values", "nobody sent anything")
def does_nothing(group):
    return lambda x, *weights: tuple(x @ weight.T for weight in weights), same


@wrong("f_and_g", "own work", "tinydist.collectives.autograd")
def with_the_conjugates_of_chapter_02(group):
    return hooked(group), lambda x: autograd.all_reduce(x, group)


@wrong("f_and_g", "time", "Nothing is computed while the all-reduce runs")
def pasted_from_the_notebook(group):
    """f alone, and then the products: autograd waits for the sum where it comes."""
    return hooked(group), lambda x: Two.apply(x, lambda x: total(x, group), same)


def sum_seen(x, group):
    """Zeros are sent, and what others have is read in a global."""
    SEEN[dist.get_rank()] = x.clone()
    total(torch.zeros_like(x), group)
    summed = sum(SEEN[rank] for rank in dist.get_process_group_ranks(group))
    dist.barrier(group)
    return summed


@wrong("f_and_g", "communication", "results do not follow")
def zeros_are_sent(group):
    class Entering(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *weights):
            ctx.save_for_backward(x, *weights)
            return tuple(x @ weight.T for weight in weights)

        @staticmethod
        def backward(ctx, *gradients):
            x, *weights = ctx.saved_tensors
            of_x = sum_seen(sum(gradient @ weight for gradient, weight in zip(gradients, weights)), group)
            return of_x, *(gradient.T @ x for gradient in gradients)

    return Entering.apply, lambda x: Two.apply(x, lambda x: sum_seen(x, group), same)


# row_linear


def added(x, weight, bias=None):
    return Two.apply(F.linear(x, weight, bias), total, same)


@wrong("row_linear", "runs", "Autograd does not see a collective")
def a_bare_all_reduce(x, weight, bias):
    """Its numbers are right: on gloo PyTorch only warns."""
    y = F.linear(x, weight)
    dist.all_reduce(y)
    return y + bias


@wrong("row_linear", "values", "nobody sent anything")
def a_plain_product(x, weight, bias):
    return F.linear(x, weight, bias)


@wrong("row_linear", "runs", "bias has no gradient")
def bias_without_a_graph(x, weight, bias):
    return added(x, weight) + bias.detach()


@wrong("row_linear", "bytes", "sends 128 bytes")
def gathers_the_inputs(x, weight, bias):
    """The whole product on every rank."""

    def gathered(x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, 1)

    def mine(gradient):
        return gradient.chunk(dist.get_world_size(), 1)[dist.get_rank()]

    return F.linear(Two.apply(x, gathered, mine), Two.apply(weight, gathered, mine), bias)


# vocabulary_loss


def summed_with_autograd(logits, targets):
    size = logits.shape[1]
    largest = logits.detach().amax(1)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    rows = targets - dist.get_rank() * size
    here = (rows >= 0) & (rows < size)
    found = torch.where(here, logits.gather(1, rows.clamp(0, size - 1)[:, None])[:, 0], 0)
    exps = (logits - largest[:, None]).exp().sum(1)
    sums = Two.apply(torch.stack([exps, found]), total, same)
    return (sums[0].log() + largest - sums[1]).mean()


@wrong("vocabulary_loss", "memory", "holds 197,388 bytes")
def as_in_the_notebook(logits, targets):
    return summed_with_autograd(logits, targets)


@wrong("vocabulary_loss", "bytes", "three numbers a token")
def gathers_all_logits(logits, targets):
    def gathered(x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return torch.cat(parts, 1)

    def mine(gradient):
        return gradient.chunk(dist.get_world_size(), 1)[dist.get_rank()]

    return F.cross_entropy(Two.apply(logits, gathered, mine), targets)


@wrong("vocabulary_loss", "values", "the largest of its own logits")
def shifted_by_the_own_largest(logits, targets):
    """In the target's logit, too."""
    shifted = "torch.where(here, found - largest, 0)", "(sums[0].log() - sums[1])"
    return solved(
        "vocabulary_loss",
        "            dist.all_reduce(largest, dist.ReduceOp.MAX)\n",
        "            dist.all_reduce(largest.clone(), dist.ReduceOp.MAX)\n",
        "torch.where(here, found, 0)",
        shifted[0],
        "(log_sum - sums[1])",
        shifted[1],
    )(logits, targets)


@wrong("vocabulary_loss", "values", "nobody sent anything")
def of_the_own_part(logits, targets):
    return F.cross_entropy(logits, targets % logits.shape[1])


@wrong("vocabulary_loss", "runs", "has no backward")
def detached(logits, targets):
    return solved("vocabulary_loss")(logits, targets).detach()


# copied_heads


@wrong("copied_heads", "runs", "returned float32[1, 8]")
def cut_through_a_head(weight, kv_heads):
    return weight.chunk(dist.get_world_size())[dist.get_rank()].clone().requires_grad_()


@wrong("copied_heads", "runs", "new_group: the list of ranks is empty")
def groups_of_nobody(weight, kv_heads):
    return solved("copied_heads", "range(begin, begin + copies)", "range(begin, begin)")(weight, kv_heads)


@wrong("copied_heads", "runs", "6 ranks, 6 query heads")
def in_fp32(weight, kv_heads):
    return solved("copied_heads")(weight.float(), kv_heads)


def with_sum(sum_of):
    old = "dist.all_reduce(gradient, group=mine)"
    return solved("copied_heads", old, "gradient = sum_of(gradient, mine)", sum_of=sum_of)


def gathered_and_added(gradient, group):
    parts = [torch.empty_like(gradient) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, gradient.contiguous(), group=group)
    return sum(parts)


@wrong("copied_heads", "bytes", "sends 3,072 bytes")
def gathers_the_gradients(weight, kv_heads):
    return with_sum(gathered_and_added)(weight, kv_heads)


@wrong("copied_heads", "communication", "results do not follow")
def gradients_in_a_global(weight, kv_heads):
    return with_sum(sum_seen)(weight, kv_heads)
