"""Adam on all ranks' gradients in one process; and what mistakes in sharding it lead to.

A mistake is told by its result: words -> by rank, the weights that it would then have.
"""

import torch
import torch.nn.functional as F

RATE, STEPS = 0.1, 3
EPSILON = 0.1  # large: Adam divides by the size of its gradients, so that else a sum would do as well as a mean


def adam(tensors):
    return torch.optim.Adam(tensors, lr=RATE, eps=EPSILON)


def numbers(size, seed):
    return 0.2 * torch.randn(size, generator=torch.Generator().manual_seed(seed))


def start(size):
    return numbers(size, 99)


def gradient(size, rank, step):
    return numbers(size, 10 * step + rank)


def own(size, rank):
    """A rank's gradients, by step."""
    return [gradient(size, rank, step) for step in range(STEPS)]


def total(size, weights):
    """By step, all ranks' gradients added up. ``weights``: how much each counts."""
    return [
        sum(w * each for w, each in zip(weights, by_rank))
        for by_rank in zip(*(own(size, r) for r in range(len(weights))))
    ]


def scaled(gradients, factor):
    return [factor * each for each in gradients]


def trained(weights, gradients, anew=False):
    """The weights after each step. ``anew``: with a new optimizer in each."""
    weights, found = weights.clone(), []
    optimizer = adam([weights])
    for each in gradients:
        optimizer = adam([weights]) if anew else optimizer
        weights.grad = each
        optimizer.step()
        found.append(weights.detach().clone())
    return found


def pieces(whole, ranks):
    return F.pad(whole, (0, -len(whole) % ranks)).chunk(ranks)


def suspects(size, p):
    """Words -> by rank, the weights after each step."""
    begin, sums = start(size), total(size, [1] * p)
    mean = scaled(sums, 1 / p)
    right = trained(begin, mean)
    sum_so_far = [sum(mean[: step + 1]) for step in range(STEPS)]
    same = {
        "this is as if gradients were added up over the ranks, and not averaged": trained(begin, sums),
        "gradients are divided by the number of ranks twice": trained(begin, scaled(mean, 1 / p)),
        "this is what a new optimizer in each step makes: it has forgotten its moments. Make it once, outside "
        "of step": (trained(begin, mean, anew=True)),
        "gradients of earlier steps are added to those of this one: put the new one in the place of shard.grad": (
            trained(begin, sum_so_far)
        ),
        "each shard took its step with its own rank's gradient: nothing was added up": own_gradients_alone(size, p),
        f"the last {size % p} numbers, which do not divide by {p}, never change: pad before you cut": tail_left(
            begin, right, p
        ),
    }
    for shift in range(1, p):
        same[
            f"rank 0's shard of the weights took its step with the gradient of part {shift}, or stands in the place of "
            "another: the same part of both is a rank's, the one of its number"
        ] = wrong_shard(begin, mean, p, shift)
    each = {
        "weights have not changed at all: they are to be trained in place, as with weights.copy_": [[begin] * STEPS]
        * p,
        "each rank has new numbers in its own shard alone, and old ones elsewhere: an all-gather is missing, and the "
        "ranks drift apart": [only_own_part(begin, right, rank, p) for rank in range(p)],
        "each rank has trained alone, on its own gradients": [trained(begin, own(size, rank)) for rank in range(p)],
    }
    return {words: [weights] * p for words, weights in same.items()} | each


def joined(parts, size):
    """By part, its numbers after each step -> by step, the whole."""
    return [torch.cat(each)[:size] for each in zip(*parts)]


def own_gradients_alone(size, p):
    weights = pieces(start(size), p)
    return joined([trained(weights[r], [pieces(g, p)[r] for g in own(size, r)]) for r in range(p)], size)


def wrong_shard(begin, mean, p, shift):
    """Where rank r's part of the row is that of rank r+shift, trained with gradient r."""
    gradients = [[pieces(each, p)[rank] for each in mean] for rank in range(p)]
    shards = [pieces(begin, p)[(r + shift) % p] for r in range(p)]
    return joined([trained(*each) for each in zip(shards, gradients)], len(begin))


def tail_left(begin, right, p):
    cut = len(begin) - len(begin) % p
    return [torch.cat([each[:cut], begin[cut:]]) for each in right]


def only_own_part(begin, right, rank, p):
    k = len(pieces(begin, p)[0])
    found = []
    for each in right:
        mine = begin.clone()
        mine[rank * k : rank * k + k] = each[rank * k : rank * k + k]
        found.append(mine)
    return found
