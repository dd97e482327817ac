"""What no schedule can beat, with one stage a rank, F = I = W = 1 s, and at most k activations held on a rank.

work       the last rank begins when a microbatch has come down, and has 3 s of work for each    (P-1) + 3 M
the way    the last microbatch's forward begins on rank 0 after M-1 others; down, up, W          (M-1) + 2 P + 1
memory     of k+1 microbatches in a row on rank r, one has been released before the last begins, and a microbatch
           that begins there takes 2 (P-r) s to come back, and 1 s for W: so every k microbatches take 2 (P-r) + 1
"""


def lower_bound(ranks, microbatches, budget):
    """Seconds."""
    return max(bound_of(rank, ranks, microbatches, budget) for rank in range(ranks))


def bound_of(rank, ranks, microbatches, budget):
    way = 2 * (ranks - rank)  # down to the last rank and back
    groups, more = divmod(microbatches - 1, budget)
    last_begins = rank + groups * (way + 1) + more
    return max(rank + 3 * microbatches, last_begins + way + rank + 1)
