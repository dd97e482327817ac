"""Programs for hypothesis: some of everything that ranks can do, in an order in which no rank waits for ever."""

import torch
import torch.distributed as dist
from hypothesis import strategies as st

RANKS = 4
GROUPS = ([0, 1, 2, 3], [0, 1], [2, 3], [0, 2], [1, 3], [1])
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "barrier")
FLOATS = st.integers(1, 2000).map(lambda n: n * RANKS)

programs = st.lists(
    st.one_of(
        st.tuples(st.just("compute"), st.integers(0, RANKS), FLOATS),  # not on this rank
        st.tuples(st.sampled_from(COLLECTIVES), st.sampled_from(range(len(GROUPS))), FLOATS, st.booleans()),
        st.tuples(st.just("shift"), st.integers(1, RANKS - 1), FLOATS, st.booleans()),
        st.tuples(st.just("wait")),
    ),
    max_size=12,
)


def run_steps(steps):
    rank, works = dist.get_rank(), []
    groups = [dist.new_group(ranks) for ranks in GROUPS]
    for name, *arguments in steps:
        if name == "compute":
            idle, floats = arguments
            if rank != idle:
                torch.ones(floats * (rank + 1)).add_(1)
        elif name == "wait":
            wait(works)
            works = []
        else:
            which, floats, asynchronous = arguments
            issued = shift(rank, which, floats) if name == "shift" else collective(name, groups, which, floats)
            if asynchronous:
                works += issued
            else:
                wait(issued)
    wait(works)


def wait(works):
    for work in works:
        work.wait()


def shift(rank, by, floats):
    """To the rank ``by`` further, from the rank ``by`` before."""
    outgoing = dist.isend(torch.ones(floats), (rank + by) % RANKS)
    return [outgoing, dist.irecv(torch.ones(floats), (rank - by) % RANKS)]


def collective(name, groups, which, floats):
    group, ranks = groups[which], GROUPS[which]
    if dist.get_rank() not in ranks:
        return []
    whole = torch.ones(floats)
    part = whole[: floats // len(ranks)]
    work = {
        "all_reduce": lambda: dist.all_reduce(whole, group=group, async_op=True),
        "all_gather": lambda: dist.all_gather_single(whole, part.clone(), group=group, async_op=True),
        "reduce_scatter": lambda: dist.reduce_scatter_single(part.clone(), whole, group=group, async_op=True),
        "broadcast": lambda: dist.broadcast(whole, ranks[-1], group=group, async_op=True),
        "reduce": lambda: dist.reduce(whole, ranks[0], group=group, async_op=True),
        "all_to_all": lambda: dist.all_to_all_single(whole.clone(), whole, group=group, async_op=True),
        "barrier": lambda: dist.barrier(group=group, async_op=True),
    }[name]()
    return [work]


def compute_of(events):
    """Seconds in which the rank of these events computes."""
    return sum(event.end - event.start for event in events if event.stream == "compute" and event.name != "wait")
