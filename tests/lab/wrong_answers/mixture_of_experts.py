"""Wrong answers to the exercises of 17_mixture_of_experts: with the property that rejects each, and what it is told."""

import torch
import torch.distributed as dist
from lab.registered import collection, solved

from tinydist.experts import balance_loss, capacity
from tinydist.experts.routing import Routing

WRONG_ANSWERS, wrong = collection()


@wrong("route_with_capacity", "own work", "you call tinydist.experts")
def with_the_librarys_capacity(logits, k, factor):
    capacity(len(logits), logits.shape[1], k, factor)
    return solved("route_with_capacity")(logits, k, factor)


@wrong("route_with_capacity", "kept", "Nothing was dropped")
def nothing_is_dropped(logits, k, factor):
    return solved("route_with_capacity")(logits, k, 1e6)


@wrong("route_with_capacity", "dropped", "16, where 24 is right")
def tokens_are_counted(logits, k, factor):
    """Of which an assignment is dropped."""
    found = solved("route_with_capacity")(logits, k, factor)
    return found | {"dropped": int((~found["kept"]).any(1).sum())}


@wrong("dispatch_and_combine", "bytes", "bytes")
def everything_goes_everywhere(x, chosen, weights, own, owner):
    """All ranks get all tokens, and what they make of them is summed."""
    p, rank = dist.get_world_size(), dist.get_rank()
    shapes = [None] * p
    dist.all_gather_object(shapes, len(x))
    parts = [x.new_empty(n, x.shape[1]) for n in shapes]
    chosens = [chosen.new_empty(n, chosen.shape[1]) for n in shapes]
    scales = [weights.new_empty(n, weights.shape[1]) for n in shapes]
    outs = []
    for source in range(p):
        for mine, kept in ((x, parts), (chosen, chosens), (weights, scales)):
            kept[source].copy_(mine) if source == rank else None
            dist.broadcast(kept[source], source)
        out = torch.zeros_like(parts[source])
        for number, expert in own.items():
            weight = (scales[source] * (chosens[source] == number)).sum(1, keepdim=True)
            out += weight * expert(parts[source])
        dist.all_reduce(out)
        outs.append(out)
    return outs[rank]


@wrong("dispatch_and_combine", "values", "is right")
def the_last_expert_wins(x, chosen, weights, own, owner):
    first = chosen.clone()
    first[:, :-1] = -1
    return solved("dispatch_and_combine")(x, first, weights, own, owner)


@wrong("balance_gradient", "values", "nobody sent anything")
def of_this_ranks_tokens(logits, chosen, coefficient):
    p, E = dist.get_world_size(), logits.shape[1]
    f = torch.bincount(chosen.flatten(), minlength=E) / chosen.numel()
    scores = logits.softmax(-1)
    f = f.to(logits.dtype)
    return coefficient * E / (p * len(logits)) * scores * (f - (f * scores).sum(-1, keepdim=True))


@wrong("balance_gradient", "own work", "you call tinydist.experts")
def with_the_librarys_loss(logits, chosen, coefficient):
    scores = logits.softmax(-1)
    balance_loss(Routing.of_choices(chosen, scores.gather(1, chosen), logits.shape[1], scores=scores))
    return solved("balance_gradient")(logits, chosen, coefficient)


@wrong("balance_gradient", "bytes", "bytes")
def all_scores_are_sent(logits, chosen, coefficient):
    every = logits.new_empty(dist.get_world_size() * len(logits), logits.shape[1])
    dist.all_gather_into_tensor(every, logits)
    return solved("balance_gradient")(logits, chosen, coefficient)


@wrong("mended_experts", "values", "is right")
def the_residual_is_left_out_for_all(x, targets, gate, experts, most, send, group, same):
    return solved("mended_experts", "y = x + out", "y = out")(x, targets, gate, experts, most, send, group, same)


@wrong("place_experts", "rows", "is right")
def the_most_popular_to_the_node_with_most_tokens(chosen, nodes, E):
    load = [sum(e in experts for experts in chosen) for e in range(E)]
    first = sorted(sorted(range(E), key=lambda e: -load[e])[: E // 2])
    right = solved("place_experts")(chosen, nodes, E)
    rows = sum(any((e not in first) != node for e in experts) for experts, node in zip(chosen, nodes))
    return {"rows": rows, "in order": right["in order"], "node 0": first}


@wrong("dispatch_and_combine", "values", "-1 is no expert")
def the_dropped_go_to_the_last_expert(x, chosen, weights, own, owner):
    return solved("dispatch_and_combine")(x, chosen % len(owner), weights, own, owner)


@wrong("dispatch_and_combine", "values", "was overwritten")
def the_last_row_overwrites(x, chosen, weights, own, owner):
    way = "torch.zeros_like(x).index_{}(0, token, ".format
    return solved("dispatch_and_combine", way("add"), way("copy"))(x, chosen, weights, own, owner)


@wrong("place_experts", "rows", "Expert 0 need not be on node 0")
def expert_0_is_on_node_0(chosen, nodes, E):  # the lab must not try all placements of 512 experts to explain it
    every = "combinations(range(E), E // 2)"
    return solved("place_experts", f"list({every})", f"[each for each in {every} if 0 in each]")(chosen, nodes, E)
