"""Wrong answers to the exercises of 20_compilers: each with the property that rejects it, and what it is told."""

import torch
from lab.registered import collection, solved

from tinydist import compilers

WRONG_ANSWERS, wrong = collection()


@wrong("mended_graph", "one graph", "< length].mean(0)")
def rows_by_a_mask(x, length, limit):
    mean = x[torch.arange(len(x)) < length].mean(0)
    norm = mean.norm()
    return mean * torch.where(norm > limit, limit / norm, 1.0)


@wrong("mended_graph", "one graph", "A Python `if` asks for data")
def still_an_if(x, length, limit):
    left_out = torch.arange(len(x)) >= length
    mean = x.masked_fill(left_out[:, None], 0).sum(0) / length
    factor = limit / mean.norm()
    return factor * mean if factor < 1 else mean


@wrong("mended_graph", "one graph", "_local_scalar_dense")
def a_number_of_python(x, length, limit):
    mean = x.masked_fill((torch.arange(len(x)) >= length)[:, None], 0).sum(0) / length.item()
    return mean * (limit / mean.norm()).clamp(max=1)


@wrong("mended_graph", "one graph", "other numbers than the function")
def another_way_without_data(x, length, limit):
    mean = x[: int(length)].mean(0) if type(x) is torch.Tensor else x.mean(0)
    return mean * (limit / mean.norm()).clamp(max=1)


@wrong("mended_graph", "own work", "tinydist.compilers")
def captured_inside(x, length, limit):
    compilers.capture(torch.neg, x)
    return solved("mended_graph")(x, length, limit)


@wrong("fuse_chain", "values", "2 things")
def fuses_nothing(nbytes, operators):
    pass


@wrong("fuse_chain", "values", "the kernels")
def each_its_own(nbytes, operators):
    return list(range(len(operators))), solved("fuse_chain")(nbytes, operators)[1]


@wrong("plan_buffers", "own work", "tinydist.compilers")
def librarys_plan(buffers, alignment):
    offsets, arena = compilers.greedy_by_size([compilers.Buffer(*each) for each in buffers])
    return offsets, arena


@wrong("plan_buffers", "values", "the offsets")
def side_by_side(buffers, alignment):
    offsets, end = [], 0
    for nbytes, *_ in buffers:
        offsets.append(end)
        end += -(-nbytes // alignment) * alignment
    return offsets, end


@wrong("place_collectives", "values", "")
def all_reduces_always(tokens, widths, cuts, ranks, itemsize):
    return [0] + [2 * (ranks - 1) * tokens * width * itemsize // ranks for width in widths[1:]]


@wrong("mended_softmax", "own work", "softmax")
def torchs_softmax(x, tile):
    return torch.softmax(x, -1)


@wrong("mended_softmax", "values", "")
def normalizes_tiles(x, tile):
    return torch.cat([part.exp() / part.exp().sum(1, keepdim=True) for part in x.split(tile, 1)], 1)


@wrong("mended_softmax", "tiles", "as long as a row")
def whole_rows(x, tile):
    weights = (x - x.amax(1, keepdim=True)).exp()
    return weights / torch.einsum("rc->r", weights)[:, None]


@wrong("mended_softmax", "values", "1,000 apart")
def one_maximum_for_all_rows(x, tile):
    weights = (x - x.max()).exp()
    return weights / torch.einsum("rc->r", weights)[:, None]


@wrong("plan_buffers", "values", "take the smallest")
def largest_gap(buffers, alignment):
    offsets, arena, placed = [], 0, []
    for nbytes, first, its_last in buffers:
        size, gaps, end = -(-nbytes // alignment) * alignment, [], 0
        for begin, until in sorted((begin, until) for begin, until, last in placed if last >= first):
            if begin - end >= size:
                gaps.append((begin - end, end))
            end = until
        offsets.append(max(gaps)[1] if gaps else end)
        placed.append((offsets[-1], offsets[-1] + size, its_last))
        arena = max(arena, offsets[-1] + size)
    return offsets, arena
