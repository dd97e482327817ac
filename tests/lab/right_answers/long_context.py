"""Other right answers to the exercises of 16_long_context: they must pass."""

import math

import torch
from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("gradients_in_runs")
def by_fork(blocks, x, dout, k):
    """The generator's state is put aside by torch, and backward is asked for gradients."""
    starts = [*range(0, len(blocks), k)]
    inputs, states = [x], []
    with torch.no_grad():
        for start in starts:
            states.append(torch.get_rng_state())
            y = inputs[-1]
            for block in blocks[start : start + k]:
                y = block(y)
            inputs.append(y)
    y, gradient = inputs.pop(), dout
    with torch.random.fork_rng(devices=[]):
        for start, given, state in reversed([*zip(starts, inputs, states)]):
            torch.set_rng_state(state)
            given = given.detach().requires_grad_()
            out = given
            for block in blocks[start : start + k]:
                out = block(out)
            torch.autograd.backward(out, gradient)
            gradient = given.grad
    return y, gradient


@right("attend_by_layout")
def block_by_block(q, k, v, layout, size):
    """Merged, as flash attention does."""
    outs, lses = [], []
    for queries, row in zip(q.split(size), layout):
        maximum = torch.full((len(queries), 1), -math.inf)
        total, out = torch.zeros(len(queries), 1), torch.zeros(len(queries), v.shape[1])
        for keys, values, there in zip(k.split(size), v.split(size), row):
            if there:
                scores = queries @ keys.T / math.sqrt(q.shape[1])
                new = torch.maximum(maximum, scores.amax(1, keepdim=True))
                weights, shrink = (scores - new).exp(), (maximum - new).exp()
                total, out, maximum = (
                    shrink * total + weights.sum(1, keepdim=True),
                    shrink * out + weights @ values,
                    new,
                )
        outs.append(out / total.clamp(min=1))
        lses.append((maximum + total.log())[:, 0])
    return torch.cat(outs), torch.cat(lses)


@right("layers_needed")
def by_powers(layout):
    """Who knows what after each layer, as a matrix."""
    step = layout.int() + torch.eye(len(layout), dtype=torch.int32)
    known, found = torch.eye(len(layout), dtype=torch.int32), []
    for _ in range(len(layout) + 1):
        found.append(known[-1].bool())
        known = (step @ known).clamp(max=1)
    return [next((at for at, row in enumerate(found) if row[block]), -1) for block in range(len(layout))]


@right("least_seconds")
def by_bytes(layers, budget):
    """A table: for each number of bytes the least seconds."""
    tables = [{0: 0}]
    for end in range(1, len(layers) + 1):
        table = {}
        for start in range(end):
            run = layers[start:end]
            alive, again = sum(each[1] for each in run), sum(each[2] for each in run)
            for held, seconds in tables[start].items():
                if held + alive > budget:
                    continue
                ways = [(held + run[0][0], seconds + again)]
                ways += [(held + run[0][1], seconds)] * (len(run) == 1)
                for bytes_, time in ways:
                    table[bytes_] = min(time, table.get(bytes_, math.inf))
        tables.append(table)
    return min(tables[-1].values(), default=-1)
