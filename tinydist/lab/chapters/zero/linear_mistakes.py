"""A chain of layers in one process; and what mistakes in gathering and reducing its weights lead to."""

import torch

from .chain import inputs, part


def in_one_process(whole, rank, step, backward_with=None):
    """Output, gradient of x, gradients of the weights. ``backward_with``: other weights for the gradient of x."""
    x, saved = inputs(rank, step), []
    for weight in whole:
        y = torch.tanh(x @ weight.T)
        saved.append((x, y))
        x = y
    output, grad, found = y, 2 * y, []
    for (x, y), weight in zip(reversed(saved), reversed(backward_with or whole)):
        grad = grad * (1 - y * y)
        found.insert(0, grad.T @ x)
        grad = grad @ weight
    return output, grad, found


def gradients_of_x(whole, p, step, mixed):
    """By rank: where each layer's gradient of x, by rank, has gone through ``mixed``."""
    each = [inputs(rank, step) for rank in range(p)]
    saved = []
    for weight in whole:
        each = [torch.tanh(x @ weight.T) for x in each]
        saved.append(each)
    grads = [2 * y for y in each]
    for ys, weight in zip(reversed(saved), reversed(whole)):
        grads = mixed([grad * (1 - y * y) @ weight for grad, y in zip(grads, ys)])
    return grads


def added(so_far, by_rank):
    """By rank and layer."""
    return by_rank if so_far is None else [[a + b for a, b in zip(*rank)] for rank in zip(so_far, by_rank)]


def mean_of(by_rank, weights):
    return [sum(w * g for w, g in zip(weights, layer)) / len(weights) for layer in zip(*by_rank)]


def suspects(place, rank, p, step, whole, first, so_far, mean, last):
    """Words -> what should stand in that place, but for a mistake.

    ``so_far``: by rank, the weights' gradients of its own loss. ``mean``: of these; ``last``, of this step's alone.
    """
    zeros = [only_own(weight, rank, p) for weight in whole]
    if place == 0:
        found = {
            "is that of the own shard, with zeros for the others': the weight was not gathered": zeros,
            "is that of the row as [columns, rows]. The row is W [rows, columns]: view(rows, -1), and x W^T": [
                weight.T for weight in whole
            ],
        }
        if step:
            found["is that of step 0's weights: they have changed since, and a step must gather anew"] = first
        return {words: in_one_process(weights, rank, step)[0] for words, weights in found.items()}
    if place == 1:
        stale = {
            "is that of the own shard, with zeros for the others': gather before backward, too": zeros,
            "is that of step 0's weights, which have changed since: gather before backward, too": first,
            "is that of the last layer's weight, which was left from forward: gather this layer's own before "
            "backward": [whole[-1]] * len(whole),
        }
        own = "x belongs to this rank's loss: its gradient is not averaged"
        mixed = {
            f"is the mean over the ranks: {own}": lambda grads: [sum(grads) / p] * p,
            f"is the sum over the ranks: {own}": lambda grads: [sum(grads)] * p,
            f"is divided by p in each layer: {own}": lambda grads: [grad / p for grad in grads],
        }
        return {w: in_one_process(whole, rank, step, theirs)[1] for w, theirs in stale.items()} | {
            words: gradients_of_x(whole, p, step, each)[rank] for words, each in mixed.items()
        }
    own = so_far[rank]
    wholes = {
        f"is {p} times too large, the number of ranks: this is the sum, and not the mean": [p * g for g in mean],
        f"is {p} times too small, the number of ranks: it is divided twice": [g / p for g in mean],
        "is that of this step alone: return it from backward, and autograd adds it to shard.grad": last,
        "is W's gradient transposed: x^T @ grad, where grad^T @ x has W's shape": [g.T for g in mean],
        "is that of its own loss alone: nothing was added up over the ranks": own,
        "is that of its own loss alone, divided by p: nothing was added up over the ranks": [g / p for g in own],
    }
    found = {words: [part(g, rank, p) for g in theirs] for words, theirs in wholes.items()}
    for other in set(range(p)) - {rank}:
        found[f"is that of rank {other}'s shard"] = [part(g, other, p) for g in mean]
    return found


def only_own(weight, rank, p):
    parts = [each * (number == rank) for number, each in enumerate(weight.flatten().chunk(p))]
    return torch.cat(parts).view_as(weight)
