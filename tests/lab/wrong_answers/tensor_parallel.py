"""Wrong answers to the exercises of 07_tensor_parallel: each with the property that rejects it, and what it is told."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import collection

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


def ends(f, g):
    """Of pairs (forward, backward), functions."""
    return lambda x: Two.apply(x, *f), lambda x: Two.apply(x, *g)


# f_and_g


@wrong("f_and_g", "values", "nobody sent anything")
def does_nothing(group):
    return ends((same, same), (same, same))


@wrong("f_and_g", "runs", "where it should return the functions f, g")
def returns_one_function(group):
    return Two.apply


@wrong("f_and_g", "own work", "tinydist.collectives.autograd")
def with_the_conjugates_of_chapter_02(group):
    return same, lambda x: autograd.all_reduce(x, group)


@wrong("f_and_g", "values", "is a summand: add up over the group")
def without_f(group):
    return same, lambda x: Two.apply(x, lambda x: total(x, group), same)


@wrong("f_and_g", "values", "The backward of g must not add up")
def sums_both_ways(group):
    def sums(x):
        return total(x, group)

    return ends((same, sums), (sums, sums))


@wrong("f_and_g", "values", "f and g have changed places")
def the_other_way_round(group):
    def sums(x):
        return total(x, group)

    return ends((sums, same), (same, sums))


@wrong("f_and_g", "values", "You add up over all ranks")
def over_all_ranks(group):
    return ends((same, total), (total, same))


@wrong("f_and_g", "runs", "has no backward")
def without_a_graph(group):
    return same, lambda x: total(x.detach(), group)


@wrong("f_and_g", "bytes", "rank 0 sends 384 bytes, where 192 are right")
def sends_twice(group):
    def sums(x):
        total(x, group)
        return total(x, group)

    return ends((same, sums), (sums, same))


@wrong("f_and_g", "heard", "the results do not follow what is sent")
def zeros_are_sent(group):
    """What others have is read in a global."""

    def sums(x):
        SEEN[dist.get_rank()] = x.clone()
        total(torch.zeros_like(x), group)
        summed = sum(SEEN[rank] for rank in dist.get_process_group_ranks(group))
        dist.barrier(group)
        return summed

    return ends((same, sums), (sums, same))


# row_linear


def added(x, weight, bias=None):
    return Two.apply(F.linear(x, weight, bias), total, same)


@wrong("row_linear", "values", "nobody sent anything")
def a_plain_product(x, weight, bias):
    return F.linear(x, weight, bias)


@wrong("row_linear", "values", "y has the bias once for each rank")
def bias_in_each_summand(x, weight, bias):
    return added(x, weight, bias)


@wrong("row_linear", "values", "a share of the bias was added")
def a_share_of_the_bias(x, weight, bias):
    return added(x, weight, bias / dist.get_world_size())


@wrong("row_linear", "values", "The copies of the bias will drift apart")
def bias_on_rank_0(x, weight, bias):
    return added(x, weight, bias if dist.get_rank() == 0 else bias * 0)


@wrong("row_linear", "runs", "bias has no gradient")
def bias_without_a_graph(x, weight, bias):
    return added(x, weight) + bias.detach()


@wrong("row_linear", "values", "The backward of the sum must not add up")
def sums_in_backward(x, weight, bias):
    return Two.apply(F.linear(x, weight), total, total) + bias


@wrong("row_linear", "bytes", "rank 0 sends 128 bytes, where 120 are right")
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


def in_parts(logits, targets, largest, offset=None, group_sum=total):
    """With autograd: (log sum of exp, the target's logit), a token."""
    size = logits.shape[1]
    rows = targets - (dist.get_rank() * size if offset is None else offset)
    here = (rows >= 0) & (rows < size)
    found = torch.where(here, logits.gather(1, rows.clamp(0, size - 1)[:, None])[:, 0], 0)
    exps = (logits - largest[:, None]).exp().sum(1)
    sums = Two.apply(torch.stack([exps, found]), group_sum, same)
    return sums[0].log() + largest, sums[1]


def largest_of_all(logits):
    largest = logits.detach().amax(1)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest


@wrong("vocabulary_loss", "memory", "Autograd keeps what each operator needs")
def as_in_the_notebook(logits, targets):
    log_sum, target = in_parts(logits, targets, largest_of_all(logits))
    return (log_sum - target).mean()


@wrong("vocabulary_loss", "bytes", "three numbers a token")
def gathers_all_logits(logits, targets):
    def gathered(x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return torch.cat(parts, 1)

    def mine(gradient):
        return gradient.chunk(dist.get_world_size(), 1)[dist.get_rank()]

    return F.cross_entropy(Two.apply(logits, gathered, mine), targets)


@wrong("vocabulary_loss", "values", "nobody sent anything")
def of_the_own_part(logits, targets):
    return F.cross_entropy(logits, targets % logits.shape[1])


@wrong("vocabulary_loss", "values", "Take the largest of all ranks")
def each_its_own_largest(logits, targets):
    log_sum, target = in_parts(logits, targets, logits.detach().amax(1))
    largest_of_all(logits)
    return (log_sum - target).mean()


@wrong("vocabulary_loss", "values", "Targets are tokens of the whole vocabulary")
def rows_of_rank_0(logits, targets):
    log_sum, target = in_parts(logits, targets, largest_of_all(logits), offset=0)
    return (log_sum - target).mean()


@wrong("vocabulary_loss", "values", "the loss is 13.2529, where 2.65058 is right")
def a_sum_over_tokens(logits, targets):
    log_sum, target = in_parts(logits, targets, largest_of_all(logits))
    return (log_sum - target).sum()


@wrong("vocabulary_loss", "values", "exp overflows")
def without_the_largest(logits, targets):
    """exp overflows where logits are large."""
    log_sum, target = in_parts(logits, targets, largest_of_all(logits) * 0)
    return (log_sum - target).mean()


@wrong("vocabulary_loss", "runs", "has no backward")
def detached(logits, targets):
    log_sum, target = in_parts(logits.detach(), targets, largest_of_all(logits))
    return (log_sum - target).mean()


# copied_heads


def own_rows(weight, kv_heads, first=None):
    rank, t = dist.get_rank(), dist.get_world_size()
    parts = weight.chunk(kv_heads) if kv_heads < t else weight.chunk(t)
    return parts[rank * len(parts) // t if first is None else first].clone()


def with_copies(kv_heads):
    """The group of those who have what this rank has."""
    group, _ = dist.new_subgroups(max(1, dist.get_world_size() // kv_heads))
    return group


@wrong("copied_heads", "values", "Add up over the ranks that have the same head")
def no_sum_of_copies(weight, kv_heads):
    return own_rows(weight, kv_heads).requires_grad_()


@wrong("copied_heads", "runs", "returned float32[2, 8], where float32[4, 8] is right")
def always_one_head(weight, kv_heads):
    part = weight.chunk(kv_heads)[dist.get_rank() * kv_heads // dist.get_world_size()].clone().requires_grad_()
    group = with_copies(kv_heads)
    part.register_hook(lambda gradient: total(gradient, group))
    return part


@wrong("copied_heads", "runs", "the queries of a rank read 1 of the 1 KV heads")
def cut_through_a_head(weight, kv_heads):
    return weight.chunk(dist.get_world_size())[dist.get_rank()].clone().requires_grad_()


@wrong("copied_heads", "runs", "is no leaf that takes a gradient")
def without_a_gradient(weight, kv_heads):
    return own_rows(weight, kv_heads)


@wrong("copied_heads", "values", "Ranks that read the same KV head are neighbors")
def in_turns(weight, kv_heads):
    """Rank r has head r % G, and those with the same remainder are a group."""
    rank, t = dist.get_rank(), dist.get_world_size()
    if kv_heads >= t:
        return own_rows(weight, kv_heads).requires_grad_()
    groups = [dist.new_group(list(range(head, t, kv_heads))) for head in range(kv_heads)]
    part = own_rows(weight, kv_heads, rank % kv_heads).requires_grad_()
    part.register_hook(lambda gradient: total(gradient, groups[rank % kv_heads]))
    return part


@wrong("copied_heads", "values", "must not be summed again")
def summed_again(weight, kv_heads):
    """What the first microbatch has left in .grad is summed with the second's."""
    group, part = with_copies(kv_heads), own_rows(weight, kv_heads).requires_grad_()

    def add_up(part):
        dist.all_reduce(part.grad, group=group)

    part.register_post_accumulate_grad_hook(add_up)
    return part


@wrong("copied_heads", "values", "Only one of the ranks with a copy gets the sum")
def reduced_to_one(weight, kv_heads):
    group, part = with_copies(kv_heads), own_rows(weight, kv_heads).requires_grad_()

    def add_up(gradient):
        gradient = gradient.clone()
        dist.reduce(gradient, group=group, group_dst=0)
        return gradient

    part.register_hook(add_up)
    return part


@wrong("copied_heads", "runs", "returned float32[2, 8], where float64[2, 8] is right")
def in_fp32(weight, kv_heads):
    group, part = with_copies(kv_heads), own_rows(weight, kv_heads).float().requires_grad_()
    part.register_hook(lambda gradient: total(gradient, group))
    return part


@wrong("copied_heads", "bytes", "rank 0 sends 3,072 bytes, where 2,304 are right")
def gathers_the_gradients(weight, kv_heads):
    """And adds them up itself."""
    group, part = with_copies(kv_heads), own_rows(weight, kv_heads).requires_grad_()

    def add_up(gradient):
        parts = [torch.empty_like(gradient) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, gradient.contiguous(), group=group)
        return sum(parts)

    part.register_hook(add_up)
    return part


@wrong("copied_heads", "memory", "clone it")
def a_view(weight, kv_heads):
    group = with_copies(kv_heads)
    part = weight.chunk(min(kv_heads, dist.get_world_size()))
    part = part[dist.get_rank() * len(part) // dist.get_world_size()].requires_grad_()
    part.register_hook(lambda gradient: total(gradient, group))
    return part


@wrong("copied_heads", "heard", "the results do not follow what is sent")
def gradients_in_a_global(weight, kv_heads):
    group, part = with_copies(kv_heads), own_rows(weight, kv_heads).requires_grad_()

    def add_up(gradient):
        SEEN[dist.get_rank()] = gradient.clone()
        total(torch.zeros_like(gradient), group)
        summed = sum(SEEN[rank] for rank in dist.get_process_group_ranks(group))
        dist.barrier(group)
        return summed

    part.register_hook(add_up)
    return part


# mended_copies


def a_step(own_masks=True, sums=True, shares=True, clips=True, returns="norm"):
    """The solution, with switches."""

    def step(scale, up, down, x, targets, mask, seed, enter, leave, max_norm):
        rank, t = dist.get_rank(), dist.get_world_size()
        hidden = torch.tanh(enter(x * x.square().mean(-1, keepdim=True).rsqrt() * scale) @ up)
        y = x + leave(hidden * mask(hidden, seed + rank * own_masks) @ down)
        (y - targets).square().sum().backward()
        if sums:
            dist.all_reduce(scale.grad)
        squares = [each.grad.square().sum() for each in (scale, up, down)]
        square = squares[0] / (t if shares else 1) + squares[1] + squares[2]
        dist.all_reduce(square)
        norm = square.sqrt()
        if clips:
            for each in (scale, up, down):
                each.grad *= (max_norm / norm).clamp(max=1.0)
        return norm if returns == "norm" else square

    return step


@wrong("mended_copies", "values", "so its mask is drawn with seed + rank")
def the_same_mask(*arguments):
    return a_step(own_masks=False)(*arguments)


@wrong("mended_copies", "values", "without it the copies drift apart")
def no_sum(*arguments):
    return a_step(sums=False)(*arguments)


@wrong("mended_copies", "values", "each of t copies counts 1/t")
def copies_count_t_times(*arguments):
    return a_step(shares=False)(*arguments)


@wrong("mended_copies", "values", "Nothing was clipped")
def nothing_is_clipped(*arguments):
    return a_step(clips=False)(*arguments)


@wrong("mended_copies", "values", "the norm is 16771.3, where 129.504 is right")
def the_square_of_the_norm(*arguments):
    return a_step(returns="square")(*arguments)


@wrong("mended_copies", "runs", "scale has no gradient")
def nothing_at_all(scale, *others):
    return scale.sum()
