"""Gradients of one process, by layer; and what mistakes in reducing and freeing them lead to."""

from functools import cache

from ...values import close
from .chain import OBLONG, inputs, loss, model, part

LAYERS = 8


def batch(rank, step):
    return inputs(rank, step, OBLONG[0][1])


@cache
def gradients(rank, step):
    """Of one process on this rank's inputs, layer by layer."""
    chain = model(LAYERS)
    loss(chain(batch(rank, step))).backward()
    return [module.weight.grad for module in chain if hasattr(module, "weight")]


def shards(layers, rank, p):
    return [part(layer, rank, p) for layer in layers]


def alike(mine, theirs):
    return all(map(close, mine, theirs))


def suspects(own, mean, p):
    """Words -> by rank, the shards of the last step."""
    now = mean[-1]
    same = {
        f"the gradients are {p} times too large, the number of ranks: this is the sum, and not the mean": [
            p * g for g in now
        ],
        f"the gradients are {p} times too small, the number of ranks: they are divided twice": [g / p for g in now],
        "the gradients are those of the layers in the order of backward: sort them as layers are": now[::-1],
    }
    if len(mean) > 1:
        steps_so_far = (
            "these are the gradients of all steps so far: old ones are still there when backward adds. Where "
        )
        same[steps_so_far + "is .grad set to None, or the own part begun anew?"] = [sum(each) for each in zip(*mean)]
        same["these are the gradients of the step before"] = mean[-2]
    found = {words: [shards(layers, rank, p) for rank in range(p)] for words, layers in same.items()}
    found["these are their own gradients: nothing was added up over the ranks"] = [
        shards(own[-1][rank], rank, p) for rank in range(p)
    ]
    found["these are their own gradients / p: nothing was added up over the ranks"] = [
        [g / p for g in shards(own[-1][rank], rank, p)] for rank in range(p)
    ]
    for shift in range(1, p):
        found[f"rank 0 has the mean gradient of rank {shift}'s shard, and not of its own"] = [
            shards(now, (rank + shift) % p, p) for rank in range(p)
        ]
    return found
