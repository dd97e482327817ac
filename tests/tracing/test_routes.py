"""What collectives send, step by step: all of it arrives, and no more is sent than the formulas say."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinydist.tracing.record import Transfer
from tinydist.tracing.routes import ROUTES, route

ROOTED = {"broadcast", "reduce", "gather", "scatter"}
NBYTES = 8 * 9 * 5 * 7  # divides by every number of ranks here


def routed(name, ranks, nbytes=NBYTES, per_node=100, root=0):
    transfer = Transfer(name)
    transfer.ranks, transfer.nbytes = tuple(ranks), nbytes
    transfer.root = ranks[root] if name in ROOTED else None
    if name == "all_to_all":
        transfer.nbytes = {(a, b): nbytes / len(ranks) for a in ranks for b in ranks}
    return route(transfer, lambda rank: rank // per_node)


def total(phases):
    return sum(sum(phase.edges.values()) for phase in phases)


def steps(phases):
    return [phase.steps for phase in phases]


groups = st.lists(st.integers(0, 31), min_size=1, max_size=10, unique=True)
collectives = st.sampled_from(sorted(set(ROUTES) - {"message"}))
BYTES = {  # that all ranks of a group of p send together, in units of nbytes
    "all_reduce": lambda p: 2 * (p - 1),
    "reduce_scatter": lambda p: p - 1,
    "all_gather": lambda p: p - 1,
    "broadcast": lambda p: p - 1,
    "reduce": lambda p: p - 1,
    "gather": lambda p: p - 1,
    "scatter": lambda p: p - 1,
    "all_to_all": lambda p: p - 1,
    "barrier": lambda p: 0,
}


@given(collectives, groups, st.integers(1, 8))
def test_bytes_are_those_of_the_closed_form_wherever_the_ranks_stand(name, ranks, per_node):
    """Two levels send as many bytes as one ring, and fewer of them between nodes."""
    phases = routed(name, ranks, per_node=per_node)
    assert total(phases) == pytest.approx(BYTES[name](len(ranks)) * NBYTES)


@given(collectives, groups, st.integers(1, 8))
def test_bytes_go_from_one_rank_of_the_group_to_another(name, ranks, per_node):
    for phase in routed(name, ranks, per_node=per_node):
        assert phase.steps >= 0
        for (source, destination), nbytes in phase.edges.items():
            assert {source, destination} <= set(ranks) and source != destination and nbytes > 0


@given(collectives, st.integers(0, 31))
def test_a_rank_alone_sends_nothing_and_waits_for_nothing(name, rank):
    phases = routed(name, [rank])
    assert total(phases) == 0 and sum(steps(phases)) == 0


@given(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]), st.integers(2, 8), st.integers(1, 4))
def test_every_rank_of_a_ring_sends_as_much_as_it_receives(name, per_node, nodes):
    for phase in routed(name, range(per_node * nodes), per_node=per_node):
        sent, received = Counter(), Counter()
        for (source, destination), nbytes in phase.edges.items():
            sent[source] += nbytes
            received[destination] += nbytes
        assert sent == received and len(set(sent.values())) == 1


def test_the_phases_of_a_two_level_all_reduce():
    phases = routed("all_reduce", range(8), per_node=4)
    assert steps(phases) == [3, 2, 3]
    assert set(phases[0].edges) == {(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4)}
    assert set(phases[1].edges) == {(rank, (rank + 4) % 8) for rank in range(8)}
    assert set(phases[1].edges.values()) == {2 * 1 / 2 * NBYTES / 4}
    assert phases[2] == phases[0]


def test_nodes_with_unlike_numbers_of_ranks_are_one_ring():
    for phase in routed("all_reduce", range(6), per_node=4):
        assert phase.steps == 5 and set(phase.edges) == {(rank, (rank + 1) % 6) for rank in range(6)}


def test_one_rank_a_node_is_one_ring():
    (phase,) = routed("all_reduce", [0, 4, 8], per_node=4)
    assert phase.steps == 4 and set(phase.edges) == {(0, 4), (4, 8), (8, 0)}


@given(groups, st.integers(1, 8))
def test_an_all_gather_is_a_reduce_scatter_backwards(ranks, per_node):
    there, back = (routed(name, ranks, per_node=per_node) for name in ("reduce_scatter", "all_gather"))
    assert there == back[::-1]


@given(groups, st.data())
def test_a_broadcast_reaches_every_rank_once_from_one_that_has_it(ranks, data):
    root = data.draw(st.sampled_from(range(len(ranks))))
    phases = routed("broadcast", ranks, root=root)
    reached = {ranks[root]}
    for phase in phases:
        sources, destinations = zip(*phase.edges, strict=True)
        assert set(sources) <= reached and len(set(sources)) == len(sources)
        assert not reached & set(destinations) and len(set(destinations)) == len(destinations)
        reached |= set(destinations)
    assert reached == set(ranks) and len(phases) == (len(ranks) - 1).bit_length()
    backwards = [{(b, a) for a, b in phase.edges} for phase in routed("reduce", ranks, root=root)]
    assert backwards[::-1] == [set(phase.edges) for phase in phases]


def test_gather_and_scatter_are_all_with_the_root():
    (gather,), (scatter,) = (routed(name, [4, 5, 6], root=1) for name in ("gather", "scatter"))
    assert set(gather.edges) == {(4, 5), (6, 5)} and set(scatter.edges) == {(5, 4), (5, 6)}
    assert gather.steps == scatter.steps == 2


def test_an_uneven_all_to_all_sends_what_each_has_for_each():
    transfer = Transfer("all_to_all")
    transfer.ranks, transfer.nbytes = (0, 1), {(0, 0): 100, (0, 1): 8, (1, 0): 0, (1, 1): 7}
    (phase,) = route(transfer, lambda rank: 0)
    assert phase.edges == {(0, 1): 8} and phase.steps == 1


def test_a_message_goes_straight():
    (phase,) = routed("message", [3, 1])
    assert phase == (1, {(3, 1): NBYTES})
