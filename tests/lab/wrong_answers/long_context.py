"""Wrong answers to the exercises of 16_long_context: each with the property that rejects it, and what it is told."""

import torch
from lab.registered import collection, solved
from torch.utils.checkpoint import checkpoint

from tinydist.attention import attention
from tinydist.attention.sparse_layouts import hops
from tinydist.recompute import Layer, least_recomputation

WRONG_ANSWERS, wrong = collection()


@wrong("gradients_in_runs", "own work", "torch.utils.checkpoint")
def torchs_own(blocks, x, dout, k):
    x = x.detach().requires_grad_()
    y = x
    for block in blocks:
        y = checkpoint(block, y, use_reentrant=False)
    y.backward(dout)
    return y, x.grad


@wrong("gradients_in_runs", "memory", "one input for each run of k")
def keeps_all(blocks, x, dout, k):
    x = x.detach().requires_grad_()
    y = x
    for block in blocks:
        y = block(y)
    y.backward(dout)
    return y, x.grad


@wrong("gradients_in_runs", "memory", "one input for each run of k")
def runs_of_one(blocks, x, dout, k):
    return solved("gradients_in_runs")(blocks, x, dout, 1)


@wrong("gradients_in_runs", "values", "the weights' gradients")
def gradients_of_this_pass_alone(blocks, x, dout, k):
    for parameter in blocks.parameters():
        parameter.grad = None
    return solved("gradients_in_runs")(blocks, x, dout, k)


@wrong("gradients_in_runs", "work", "each block runs forward twice")
def from_the_beginning_for_each_run(blocks, x, dout, k):
    """Only x is kept."""
    begin = torch.get_rng_state()
    with torch.no_grad():
        y = x
        for block in blocks:
            y = block(y)
    end, gradient = torch.get_rng_state(), dout
    for first in reversed(range(0, len(blocks), k)):
        torch.set_rng_state(begin)
        given = x
        with torch.no_grad():
            for block in blocks[:first]:
                given = block(given)
        given = given.detach().requires_grad_()
        out = given
        for block in blocks[first : first + k]:
            out = block(out)
        out.backward(gradient)
        gradient = given.grad
    torch.set_rng_state(end)
    return y, gradient


@wrong("attend_by_layout", "memory", "a row of blocks at a time")
def all_scores_first(q, k, v, layout, size):
    out, lse = torch.zeros(len(q), v.shape[1]), torch.full((len(q),), -torch.inf)
    seen = layout.repeat_interleave(size, 1)[:, : len(k)]
    scores = [rows @ k[keys].T / q.shape[1] ** 0.5 for rows, keys in zip(q.split(size), seen)]
    for row, (each, keys) in enumerate(zip(scores, seen)):
        if keys.any():
            out[row * size : (row + 1) * size] = each.softmax(1) @ v[keys]
            lse[row * size : (row + 1) * size] = each.logsumexp(1)
    return out, lse


@wrong("attend_by_layout", "own work", "tinydist.attention")
def librarys_own(q, k, v, layout, size):
    mask = layout.repeat_interleave(size, 0).repeat_interleave(size, 1)[: len(q), : len(k)]
    return attention(*(each[None, None] for each in (q, k, v)), mask=mask)[0, 0], torch.zeros(len(q))


@wrong("attend_by_layout", "values", "out")
def exponentials_as_they_are(q, k, v, layout, size):
    edit = "scores.exp() / scores.exp().sum(1, keepdim=True)"
    return solved("attend_by_layout", "scores.softmax(1)", edit)(q, k, v, layout, size)


@wrong("layers_needed", "own work", "tinydist.attention")
def the_librarys_hops(layout):
    return [int(layers) if layers < len(layout) else -1 for layers in hops(layout)[-1]]


@wrong("layers_needed", "values", "is right")
def as_if_a_window(layout):
    """The distance over what the last block sees."""
    n, width = len(layout), max(1, int(layout[-1].sum()) - 1)
    return [-(-(n - 1 - block) // width) for block in range(n)]


@wrong("layers_needed", "values", "is right")
def from_the_front(layout):
    """As if knowledge moved only to later blocks, and each block had to be settled once."""
    needed = [-1] * (len(layout) - 1) + [0]
    for block in reversed(range(len(layout) - 1)):
        later = [needed[j] + 1 for j in range(block + 1, len(layout)) if layout[j, block] and needed[j] >= 0]
        needed[block] = min(later, default=-1)
    return needed


@wrong("least_seconds", "own work", "tinydist.recompute")
def librarys_choice(layers, budget):
    return least_recomputation([Layer(*each) for each in layers], budget).seconds


@wrong("least_seconds", "values", "to forget the last one saves nothing")
def greedily(layers, budget):
    """The layer with the most bytes for a second first."""
    order = sorted(range(len(layers)), key=lambda at: (layers[at][1] - layers[at][0]) / layers[at][2], reverse=True)
    seconds, held = 0, sum(kept for _, kept, _ in layers)
    for at in order:
        if held <= budget:
            return seconds
        held -= layers[at][1] - layers[at][0]
        seconds += layers[at][2]
    return seconds if held <= budget else -1


@wrong("least_seconds", "runs", "it runs more than")
def tries_all(layers, budget):
    def best(start, held):
        if start == len(layers):
            return 0
        found = float("inf")
        for end in range(start + 1, len(layers) + 1):
            run = layers[start:end]
            if held + sum(kept for _, kept, _ in run) <= budget:
                found = min(found, sum(each for _, _, each in run) + best(end, held + run[0][0]))
                if end == start + 1:
                    found = min(found, best(end, held + run[0][1]))
        return found

    found = best(0, 0)
    return -1 if found == float("inf") else found
