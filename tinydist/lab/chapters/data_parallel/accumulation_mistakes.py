"""What wrong gradients of several microbatches come from: words -> by rank, what a mistake leads to."""

from .gradients import combined, times


def over_ranks(each):
    return times(combined(each, [1] * len(each)), 1 / len(each))


def suspects(each, rows, columns, right, before):
    """``each``: by rank, the mean gradients of each microbatch."""
    p, count = len(each), len(rows)
    weights = [each / sum(rows) for each in rows]
    last = over_ranks([means[-1] for means in each])
    sums = over_ranks([combined(means, [1] * count) for means in each])
    uneven = f"a microbatch counts as much as another that has {max(rows) / min(rows):.3g} times its rows"
    same = {
        "these are the gradients of the last microbatch alone: who deleted the others?": last,
        "these are the gradients of the last microbatch alone, though weighted right: are the others deleted?": times(
            last, weights[-1]
        ),
        f"this is the sum of the {count} microbatches' means: each loss counts only for its part of the rows": sums,
        f"this is the mean of the microbatches' means: {uneven}. Weight each loss by its rows": times(sums, 1 / count),
        f"the gradients are {p} times too small, the number of ranks: ddp has divided already": times(right, 1 / p),
        f"the gradients are {count} times too small, the number of microbatches: divided twice": times(
            right, 1 / count
        ),
        f"the gradients are {p} times too large, the number of ranks: ddp takes the mean": times(right, p),
        f"the gradients are {sum(rows)} times too large, the number of rows: each loss counts for its part of them, "
        "a fraction": times(right, sum(rows)),
        f"the gradients are {sum(rows)} times too small, the number of rows: the mean has divided by it already": times(
            right, 1 / sum(rows)
        ),
        "each microbatch's mean is divided by its rows once more: it counts for its part of the rows, and is to be "
        "multiplied by them": over_ranks([combined(means, [1 / count for count in rows]) for means in each]),
        f"the gradients are {sum(rows) * columns} times too large: this is the sum over {sum(rows)} rows of {columns} "
        'columns, as of reduction="sum", and not the mean': times(right, sum(rows) * columns),
        f'the gradients are {columns} times too large, the number of columns: of a sum, as of reduction="sum", the '
        "mean is over rows and columns": times(right, columns),
    }
    if before:
        same["these are the gradients of the step before"] = before
    first = over_ranks([means[0] for means in each])
    own = {
        "the first microbatch is reduced, and not the last: what is added later stays each rank's own": [
            combined([first, *means[1:]], weights) for means in each
        ],
        "each rank has gradients of its own: nothing was reduced. The last microbatch must be outside of no_sync": [
            combined(means, weights) for means in each
        ],
        "each rank has gradients of its own: nothing was reduced, and the microbatches' means are added up": [
            combined(means, [1] * count) for means in each
        ],
        "each rank has gradients of its own: nothing was reduced": [combined(m, [1 / count] * count) for m in each],
    }
    return {words: [value] * p for words, value in same.items()} | own
