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


def mean_of(by_rank, weights):
    return [sum(w * g for w, g in zip(weights, layer)) / len(weights) for layer in zip(*by_rank)]


def suspects(place, rank, p, step, whole, first, each, mean):
    """Words -> what should stand in that place, but for a mistake."""
    zeros = [only_own(weight, rank, p) for weight in whole]
    if place == 0:
        found = {"is that of the own shard, with zeros for the others': the weight was not gathered": zeros}
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
        return {w: in_one_process(whole, rank, step, theirs)[1] for w, theirs in stale.items()} | {
            "is the mean over the ranks, or nearly: x is each rank's own, and so is its gradient": sum(
                g for _, g, _ in each
            )
            / p
        }
    own = each[rank][2]
    wholes = {
        f"is {p} times too large, the number of ranks: this is the sum, and not the mean": [p * g for g in mean],
        f"is {p} times too small, the number of ranks: it is divided twice": [g / p for g in mean],
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
