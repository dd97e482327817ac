"""What wrong shards come from: words -> how the mistake trains (resumed_training.py)."""

from math import inf

from .resumed_training import UNCLIPPED, global_norms, local_norms

TINY = 1e-30  # a norm that is never clipped


def suspects(p, max_norm):
    """Words -> the mistake."""
    found = {
        "backward computes with a weight that forward has left, the last layer's: each layer's own weight was "
        "freed, and "
        "must be gathered again before its backward": {"stale": True},
        f"gradients are {p} times too large, the number of ranks: this is the sum, and not the mean": {"factor": p},
        f"gradients are {p} times too small, the number of ranks: they are divided twice": {"factor": 1 / p},
    }
    for shift in range(1, p):
        others = (
            f"the momentum that rank 0 takes is that of rank {shift}'s shard: the state must be cut as the weights are"
        )
        found[others] = {"owner": lambda r, p, shift=shift: (r + shift) % p}
    mirrored = "ranks {} take each other's part of the momentum: cut the state as the weights are, by the rank's number"
    found[mirrored.format(f"1 and {p - 1}")] = {"owner": lambda r, p: -r % p}
    found[mirrored.format(f"0 and {p - 1}")] = {"owner": lambda r, p: p - 1 - r}
    if max_norm < inf:
        found |= {
            "each rank clips by the norm of its own shards: a step then has another length on each. The square "
            "of the norm "
            "is the sum of all ranks' squares": {"norms": local_norms},
            "the norms of the ranks are added up: add their squares, and take the root of the sum": {"norms": sums},
            "gradients are clipped by the mean of the ranks' norms: add their squares, and take the root": {
                "norms": means
            },
            "gradients are clipped by the largest of the ranks' norms: add their squares, and take the root": {
                "norms": largest
            },
            "gradients are clipped by the square of the norm: take the root": {"norms": squares},
            "each layer is clipped by its own norm: the norm is that of all layers together": {"by_layer": True},
            "gradients are not clipped": {"norms": lambda parts, p: [TINY] * p},
        }
    if max_norm == UNCLIPPED:
        longer = "this gradient is shorter than max_norm: leave it as it is"
        found[longer] = {"always": True}
    return found


def sums(parts, p):
    return [sum(local_norms(parts, p))] * p


def means(parts, p):
    return [sum(local_norms(parts, p)) / p] * p


def largest(parts, p):
    return [max(local_norms(parts, p))] * p


def squares(parts, p):
    return [global_norms(parts, p)[0] ** 2] * p
