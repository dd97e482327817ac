"""Other right answers to the exercises of 10_flash_attention: they must pass."""

import math

import torch
from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("merge_states")
def by_a_sigmoid(a, b):
    """As ring attention does: the output moves to b by b's part of the total."""
    of_b = (b[1] - a[1]).sigmoid().nan_to_num()[:, None]
    return a[0] + of_b * (b[0] - a[0]), torch.logaddexp(a[1], b[1])


@right("merge_states")
def stacked(a, b):
    outs, lses = (torch.stack(pair) for pair in zip(a, b))
    parts = lses.softmax(0).nan_to_num()
    return torch.einsum("nt,nte->te", parts, outs), lses.logsumexp(0)


@right("merge_states")
def row_by_row(a, b):
    outs, lses = [], []
    for a_out, a_lse, b_out, b_lse in zip(*a, *b):
        lse = torch.logaddexp(a_lse, b_lse)
        seen = lse > -math.inf
        outs.append((a_lse - lse).exp() * a_out + (b_lse - lse).exp() * b_out if seen else torch.zeros_like(a_out))
        lses.append(lse)
    return torch.stack(outs), torch.stack(lses)


@right("padded_or_packed")
def from_the_owner_of_each_token(lengths, tile, d):
    first_of = [sum(lengths[:number]) for number, length in enumerate(lengths) for _ in range(length)]
    packed = sum(at // tile + 1 - first_of[at] // tile for at in range(0, len(first_of), tile))
    n = -(-max(lengths) // tile)
    return {
        "packed": packed,
        "padded": sum(range(n + 1)) * len(lengths),
        "moved": 8 * max(lengths) ** 2 * len(lengths),
        "kept": 8 * d * sum(lengths) + 4 * sum(lengths),
    }


@right("flash_row")
def normalized_outputs(q, k, v, start, tile, window, sink):
    """In the order of FlashAttention: the output is divided in every tile."""
    lse, out = torch.full((len(q), 1), sink), torch.zeros(len(q), v.shape[1])
    p = torch.arange(start, start + len(q))[:, None]
    for first in range(0, min(len(k), start + len(q)), tile):
        seen = slice(first, min(first + tile, start + len(q)))
        if seen.stop <= start - window + 1:
            continue
        scores = torch.einsum("td,sd->ts", q, k[seen]) / math.sqrt(q.shape[1])
        behind = p - torch.arange(first, first + scores.shape[1])
        scores = scores.masked_fill((behind < 0) | (behind >= window), -math.inf)
        new = torch.logaddexp(lse, scores.logsumexp(1, keepdim=True))
        out, lse = out * (lse - new).exp() + (scores - new).exp() @ v[seen], new
    return out, lse.squeeze(1)


@right("flash_row")
def added_in_place(q, k, v, start, tile, window, sink):
    maximum, total = torch.full((len(q), 1), -math.inf), torch.zeros(len(q), 1)
    output = q.new_zeros(len(q), v.shape[1])
    positions = start + torch.arange(len(q))
    for keys, values, places in zip(k.split(tile), v.split(tile), torch.arange(len(k)).split(tile)):
        if places[0] > positions[-1] or places[-1] <= positions[0] - window:
            continue
        scores = torch.mm(q, keys.t()).mul_(q.shape[1] ** -0.5)
        far = positions[:, None] - places[None]
        scores.masked_fill_((far < 0) | (far >= window), float("-inf"))
        new = scores.max(1, keepdim=True).values.maximum(maximum).clamp(min=-3e38)
        factor = torch.exp(maximum - new)
        weights = scores.sub_(new).exp_()
        total.mul_(factor).add_(weights.sum(1, keepdim=True))
        output.mul_(factor).addmm_(weights, values)
        maximum = new
    new = maximum.clamp(min=sink)  # the sink comes last
    factor = torch.exp(maximum - new)
    total = total.mul_(factor).add_(torch.exp(sink - new))
    return output.mul_(factor).div_(total), new.add(total.log())[:, 0]


@right("flash_column")
def all_heads_in_one_batch(k, v, q, dout, lse, delta, start, tile, window):
    dk, dv, root = torch.zeros_like(k), torch.zeros_like(v), math.sqrt(q.shape[2])
    for first in range(start, min(q.shape[1], start + len(k) - 1 + window), tile):
        rows = slice(first, first + tile)
        scores = q[:, rows] @ k.T / root
        far = torch.arange(first, first + scores.shape[1])[:, None] - torch.arange(start, start + len(k))
        weights = (scores - lse[:, rows, None]).exp().masked_fill((far < 0) | (far >= window), 0)
        dscores = weights * (dout[:, rows] @ v.T - delta[:, rows, None])
        dk += (dscores.mT @ q[:, rows]).sum(0) / root
        dv += (weights.mT @ dout[:, rows]).sum(0)
    return dk, dv


@right("flash_column")
def by_einsum(k, v, q, dout, lse, delta, start, tile, window):
    dk = dv = 0
    scale = q.shape[-1] ** -0.5
    for queries_of, grads_of, lses, deltas in zip(q, dout, lse, delta):
        for first in range(start - start % tile, len(queries_of), tile):
            if first >= start + len(k) + window - 1:
                break
            rows = slice(first, first + tile)
            queries, grads = queries_of[rows] * scale, grads_of[rows]
            far = (first + torch.arange(len(queries)))[:, None] - (start + torch.arange(len(k)))
            mask = (far >= 0) & (far < window)
            scores = torch.einsum("td,sd->ts", queries, k).where(mask, -torch.inf)
            weights = torch.exp(scores - lses[rows].unsqueeze(-1))
            dv = dv + torch.einsum("ts,te->se", weights, grads)
            dweights = torch.einsum("te,se->ts", grads, v)
            dscores = weights * (dweights - deltas[rows].unsqueeze(-1))
            dk = dk + torch.einsum("ts,td->sd", dscores, queries)
    return dk, dv


@right("mended_flash")
def the_loop_ends_earlier(q, k, v, tile):
    outs, offset = [], len(k) - len(q)
    for start, queries in zip(range(0, len(q), tile), q.split(tile)):
        positions = torch.arange(start, start + len(queries))[:, None] + offset
        maximum, total = torch.full((len(queries), 1), -math.inf), torch.zeros(len(queries), 1)
        output = torch.zeros(len(queries), v.shape[1])
        for first in range(0, min(len(k), int(positions[-1]) + 1), tile):
            keys, values = k[first : first + tile], v[first : first + tile]
            scores = queries @ keys.T / math.sqrt(q.shape[1])
            seen = torch.arange(first, first + len(keys)) <= positions
            scores = torch.where(seen, scores, -math.inf)
            new = torch.maximum(maximum, scores.max(1, keepdim=True).values)
            factor = torch.where(maximum.isinf(), 0.0, (maximum - new).exp())
            weights = torch.where(seen, (scores - new).exp(), 0.0)
            total, output, maximum = total * factor + weights.sum(1, keepdim=True), output * factor, new
            output = torch.addmm(output, weights, values)
        outs.append(torch.where(total > 0, output / total, 0.0))
    return torch.cat(outs)


@right("mended_flash")
def numbers_for_infinity(q, k, v, tile):
    out = q.new_zeros(len(q), v.shape[1])
    for start in range(0, len(q), tile):
        stop = min(start + tile, len(q))
        positions = (torch.arange(start, stop) + len(k) - len(q)).unsqueeze(1)
        maximum = q.new_full((stop - start, 1), -math.inf)
        total, output = torch.zeros_like(maximum), out[start:stop]
        for first in range(0, len(k), tile):
            if first > positions.max():
                continue
            own = slice(first, min(first + tile, len(k)))
            scores = torch.einsum("td,sd->ts", q[start:stop], k[own]) / q.shape[1] ** 0.5
            scores.masked_fill_(torch.arange(own.start, own.stop) > positions, -math.inf)
            highest = torch.maximum(maximum, scores.amax(1, keepdim=True))
            unit = highest.nan_to_num(neginf=0.0)
            weights = (scores - unit).exp()
            total.mul_((maximum - unit).exp()).add_(weights.sum(1, keepdim=True))
            output.mul_((maximum - unit).exp()).addmm_(weights, v[own])
            maximum = highest
        output.div_(total + (total == 0))
    return out


@right("mended_flash")
def queries_that_see_nothing_first(q, k, v, tile):
    """They are left out: all others see key 0, so no maximum is -inf."""
    blind = max(0, len(q) - len(k))
    out = torch.zeros(len(q), v.shape[1])
    for start in range(0, len(q), tile):
        rows = slice(max(start, blind), min(start + tile, len(q)))
        if rows.start >= rows.stop:
            continue
        queries = q[rows] / math.sqrt(q.shape[1])
        positions = torch.arange(rows.start, rows.stop)[:, None] + len(k) - len(q)
        maximum, total, output = -math.inf, 0, 0
        for first in range(0, int(positions[-1]) + 1, tile):
            scores = queries @ k[first : first + tile].T
            scores[torch.arange(first, first + scores.shape[1]) > positions] = -math.inf
            highest = scores.amax(1, keepdim=True).clamp(min=maximum)
            weights, factor = (scores - highest).exp(), (maximum - highest).exp()
            total, output = (
                total * factor + weights.sum(1, keepdim=True),
                output * factor + weights @ v[first : first + tile],
            )
            maximum = highest
        out[rows] = output / total
    return out
