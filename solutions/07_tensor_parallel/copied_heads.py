"""Fewer heads of keys and values than ranks: copies of one head, and the sum of their gradients."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

import tinydist
from tinydist.lab.author import Bytes, Case, Malformed, Memory, Own, Values, exercise, mistake

from .chapter import SOLVED, WAITS, gradients, leaf, noted, numbers

TOKENS = 3
SMALL = 4096  # bytes: a mesh has some numbers of its own
FIRST = "rank * kv_heads // t"
ADD_UP = "        dist.all_reduce(gradient, group=mine)\n"
GROUP = "dist.new_group(list(range(begin, begin + copies)))"
MADE = f"        group = {GROUP}\n        if begin <= rank < begin + copies:\n            mine = group\n"
HOOK = "    part.register_hook(add_up)\n"
PADDED = """\
        whole = torch.zeros_like(weight)
        whole[first * size : (first + heads) * size] = gradient
        dist.all_reduce(whole)
        gradient = whole[first * size : (first + heads) * size]
        gradient /= 1 if t > kv_heads else 1
"""


def case(ranks, heads, kv_heads, size=2, dtype=torch.float32, measured=False):
    kind = "" if dtype == torch.float32 else ", float64"
    about = f"{heads} query heads, {kv_heads} KV head{'s' * (kv_heads > 1)}{kind}"
    return Case(ranks, lambda rank: (heads, kv_heads, size, dtype), about, measured)


def test_cases():
    yield case(2, 4, 1)
    yield case(4, 8, 2)
    yield case(3, 6, 1, size=3)
    yield case(6, 6, 3, dtype=torch.float64)
    yield case(2, 8, 4)
    yield case(3, 3, 3)
    yield case(1, 4, 2)
    yield case(4, 8, 2, size=64, measured=True)


class Sum(torch.autograd.Function):
    """g."""

    @staticmethod
    def forward(ctx, summand):
        dist.all_reduce(summed := summand.clone())
        return summed

    @staticmethod
    def backward(ctx, of_sum):
        return of_sum


def train(answer, heads, kv_heads, size, dtype):
    """Two steps of SGD, with the gradients of two microbatches each: copies that differ would drift apart."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    width = 4 * size
    query = leaf(weight_of(heads * size, width, 1, dtype).chunk(ranks, 0)[rank])
    out = leaf(weight_of(width, heads * size, 2, dtype).chunk(ranks, 1)[rank])
    key, value = (own_part(answer, weight_of(kv_heads * size, width, seed, dtype), kv_heads, size) for seed in (3, 4))
    tinydist.mark("cut")
    weights, found = {"query": query, "key": key, "value": value, "out": out}, {}
    for step in range(2):
        for microbatch in range(2):
            x = numbers(TOKENS, width, seed=10 * step + microbatch, dtype=dtype)
            y = Sum.apply(mixed(x, query, key, value, size) @ out.T)
            found[f"y of step {step}, microbatch {microbatch}"] = noted(y)
            y.pow(2).mean().backward()
            of_all = gradients(weights)
            found |= {f"{name} after microbatch {microbatch} of step {step}": each for name, each in of_all.items()}
        for weight in weights.values():
            with torch.no_grad():
                weight -= 0.1 * weight.grad
            weight.grad = None
    return found


def weight_of(outputs, inputs, seed, dtype):
    return numbers(outputs, inputs, seed=seed, dtype=dtype).div_(inputs**0.5)


def mixed(x, *weights_and_size):
    """What this rank's heads make of all tokens."""
    *weights, size = weights_and_size
    q, k, v = ((x @ weight.T).unflatten(1, (-1, size)).transpose(0, 1) for weight in weights)  # [heads, T, d]
    k, v = (each.repeat_interleave(len(q) // len(k), 0) for each in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1).flatten(1)


def own_part(answer, weight, kv_heads, size):
    part, rank, heads = answer(weight, kv_heads), dist.get_rank(), max(1, kv_heads // dist.get_world_size())
    came = in_words(part.shape, part.dtype) if isinstance(part, torch.Tensor) else type(part).__name__
    right = in_words([heads * size, weight.shape[1]], weight.dtype)
    if came != right:
        raise Malformed(
            f"on rank {rank} it returned {came}, where {right} is right: the queries of a rank read {heads} of the "
            f"{kv_heads} KV heads, each of {size} rows"
        )
    if not (part.is_leaf and part.requires_grad):
        raise Malformed(
            f"what it returned on rank {rank} is no leaf that takes a gradient: detach this rank's rows from the whole "
            "weight, and say requires_grad_()"
        )
    return part


def in_words(shape, dtype):
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"


def held(trial):
    """Once the weights are cut, by rank."""
    return [sum(memory.at("cut").values()) for memory in trial.run.memory]


@exercise(
    title="Fewer KV heads than ranks",
    minutes=25,
    difficulty=4,
    test_cases=test_cases,
    program=train,
    targets=[
        WAITS,
        Own("neither tinydist.tensor_parallel nor DTensors", "call the collectives of torch.distributed", SOLVED),
        Values(
            "y, and the gradients of two microbatches, in two steps; from 1 to 6 ranks, 1 to 4 KV heads", scratch=True
        ),
        Bytes("an all-reduce of the own part's gradient among those who have a copy, in each backward; else nothing"),
        Memory(
            "the rank's own heads, and not the whole weight",
            slack=SMALL,
            of=held,
            what="once weights are cut",
            advice="A slice is a view, and keeps all that it is a part of",
        ),
    ],
    mistakes=[
        mistake(
            "The gradient of a copy is a summand: it has come through this rank's queries alone. Add up over the ranks "
            "that have the same head; without that the copies drift apart",
            ADD_UP,
            "",
        ),
        mistake(
            "Ranks that read the same KV head are neighbors: with 2 heads on 4 ranks, ranks 0 and 1 have head 0",
            FIRST,
            "rank * heads % kv_heads",
        ),
        mistake(
            "You add up over all ranks. Those with another head have nothing to add",
            "group=mine",
            "group=None",
        ),
        mistake(
            "Only its members make a group. All ranks make all groups, in the same order: members find one another by "
            "the group's number",
            MADE,
            f"        if begin <= rank < begin + copies:\n            mine = {GROUP}\n",
        ),
        mistake(
            "Gradients of several microbatches add up in .grad, and what has been summed over the ranks must not be "
            "summed again: add up the gradient that comes, before it is accumulated",
            HOOK,
            "    part.register_post_accumulate_grad_hook(lambda part: setattr(part, 'grad', add_up(part.grad)))\n",
        ),
        mistake(
            "Only one of the ranks with a copy gets the sum: after a step its copy is another than theirs",
            "dist.all_reduce(gradient, group=mine)",
            "dist.reduce(gradient, dist.get_process_group_ranks(mine)[0], group=mine)",
        ),
        mistake(
            "You send the gradients of all heads to all ranks. Only those that have a copy of a head have something to "
            "add, and it is as large as the head",
            ADD_UP,
            PADDED,
        ),
        mistake(
            "The part is a view of the whole weight, which is kept alive by it: clone it",
            ".clone()",
            "",
        ),
    ],
    hints=[
        "Query heads are sharded in order, H/t to each rank, and H/G of them in a row read one KV head. Which KV "
        "heads do the queries of rank r read if t divides G? And if G divides t?",
        "In both cases the first one is r G // t. Where G is less than t, a head is on t/G ranks in a row. All ranks "
        "make all the groups, and each keeps its own.",
        "tensor.register_hook gets the gradient of each backward before it is accumulated, and what it returns takes "
        "its place. Clone, all-reduce in the group, return.",
    ],
    why="With t = 16 each of Llama 3's 8 KV heads is on two ranks, and so is its cache. It is the rule of f once more: "
    "what is replicated and feeds sharded work needs a sum in backward, among those who have a copy.",
)
def copied_heads(weight, kv_heads):
    """Return this rank's part of ``weight`` [G d, D], which gives keys (or values) of G = ``kv_heads`` heads: the rows
    of the heads that this rank's queries read, as a leaf that takes a gradient.

    The t ranks have H/t query heads each, in order, and H/G of them in a row read the same KV head. t divides G, or G
    divides t: then a head is on t/G ranks. All ranks bring the same ``weight``, work on the same tokens, and compute
    the same loss. After each of several backward passes, which add up in ``.grad``, all copies have the gradient that
    their head has in the whole layer.
    """
    rank, t = dist.get_rank(), dist.get_world_size()
    size = len(weight) // kv_heads  # rows of a head
    # ? Which heads do this rank's queries read?
    heads = max(1, kv_heads // t)
    first = rank * kv_heads // t
    part = weight[first * size : (first + heads) * size].clone().requires_grad_()
    # .

    # ? Who else has them? What must become of a gradient, and when?
    copies = max(1, t // kv_heads)
    for begin in range(0, t, copies):
        group = dist.new_group(list(range(begin, begin + copies)))
        if begin <= rank < begin + copies:
            mine = group

    def add_up(gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=mine)
        return gradient

    part.register_hook(add_up)
    return part
