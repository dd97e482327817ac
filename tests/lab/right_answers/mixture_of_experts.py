"""Other right answers to the exercises of 17_mixture_of_experts: they must pass."""

import math
from itertools import combinations

import torch
import torch.distributed as dist
from lab.registered import others

from tinydist.collectives import autograd

RIGHT_ANSWERS, right = others()


@right("route_with_capacity")
def one_after_the_other(logits, k, factor):
    N, E = logits.shape
    scores, most = logits.softmax(-1), math.ceil(factor * k * N / E)
    order = scores.argsort(dim=-1, descending=True)[:, :k]
    weights = scores.gather(1, order)
    weights = weights / weights.sum(1, keepdim=True)
    room, kept = [most] * E, torch.zeros(N, k, dtype=torch.bool)
    for choice in range(k):
        for token in range(N):
            expert = order[token, choice].item()
            kept[token, choice] = room[expert] > 0
            room[expert] -= 1
    return {"kept": kept, "weights": weights.where(kept, 0), "dropped": N * k - int(kept.sum())}


@right("dispatch_and_combine")
def the_number_travels_with_the_row(x, chosen, weights, own, owner):
    """Each row carries its expert's number in one more column."""
    p = dist.get_world_size()
    token, slot = (chosen >= 0).nonzero(as_tuple=True)
    expert = chosen[token, slot]
    to = torch.tensor(owner)[expert]
    order = to.argsort(stable=True)
    counts = torch.bincount(to, minlength=p)
    coming = torch.empty_like(counts)
    dist.all_to_all_single(coming, counts)
    sent, received = counts.tolist(), coming.tolist()
    rows = torch.cat([x[token[order]], expert[order][:, None].to(x.dtype)], 1)
    came = rows.new_empty(sum(received), rows.shape[1])
    dist.all_to_all_single(came, rows, received, sent)
    y = [own[int(row[-1])](row[None, :-1]) for row in came]
    y = torch.cat([x[:0], *y])
    back = torch.empty_like(x[token])
    dist.all_to_all_single(back, y, sent, received)
    out = torch.zeros_like(x)
    for row, at in zip(back, order.tolist()):
        out[token[at]] += weights[token[at], slot[at]] * row
    return out


@right("balance_gradient")
def by_autograd(logits, chosen, coefficient):
    E, p = logits.shape[1], dist.get_world_size()
    f = torch.nn.functional.one_hot(chosen, E).sum((0, 1)).to(logits.dtype)
    dist.all_reduce(f)
    f = f / (p * chosen.numel())
    logits = logits.detach().requires_grad_()
    loss = coefficient * E * (f * logits.softmax(1).mean(0)).sum() / p
    return torch.autograd.grad(loss, logits)[0]


@right("mended_experts")
def scattered_back(x, targets, gate, experts, most, send, group, same):
    p, g, each = dist.get_world_size(), dist.get_world_size(group), len(experts)
    weight, chosen = (x @ gate).softmax(-1).max(-1)
    kept = []
    for number in range(each * g):
        kept += (chosen == number).nonzero().squeeze(1).tolist()[:most]
    to = (chosen[kept] // each).tolist()
    sent = [to.count(rank) for rank in range(g)]
    rows, came = send(x[kept], sent, group)
    inside = torch.zeros(len(kept), each, dtype=x.dtype)
    inside[range(len(kept)), chosen[kept] % each] = 1
    inside = autograd.all_to_all(inside, sent, came, group)
    y = torch.einsum("re,reo->ro", inside, torch.einsum("rd,edo->reo", rows, experts).tanh())
    back, _ = send(y, came, group)
    out = x.index_add(0, torch.tensor(kept, dtype=torch.long), back * weight[kept, None])
    ((out - targets) ** 2).mean().div(p).backward()
    dist.all_reduce(gate.grad)
    dist.all_reduce(experts.grad, group=same)
    return out


@right("place_experts")
def by_sets(chosen, nodes, E):
    def rows(first):
        first, second = set(first), set(range(E)) - set(first)
        return sum(bool(set(experts) & (second, first)[node]) for experts, node in zip(chosen, nodes))

    found = [(rows(first), list(first)) for first in combinations(range(E), E // 2)]
    best = min(found)
    return {"rows": best[0], "in order": found[0][0], "node 0": best[1]}
