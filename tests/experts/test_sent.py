"""Bytes and messages by the traffic matrix: what a layer sends, by link, flat and over nodes."""

import pytest
import torch
from experts.moe import DIM, EXPERTS, TOP_K, drawn, on_nodes, own, tokens

import tinydist
from benchmarks.experts import dispatch_seconds
from tinydist.experts import across_bytes, copies_per_token, dispatch_cost
from tinydist.experts.hierarchical import rows_of

NUMBER = 8  # bytes, of float64 and of int64
COUNTS = EXPERTS * NUMBER  # that a rank tells all others, its own part included


def program(nodes, options, backward):
    moe = on_nodes(nodes, **options)
    x = own(tokens(rows=16)).requires_grad_()
    tinydist.mark("begin")
    y = moe(x)
    if backward:
        y.sum().backward()
    tinydist.mark("end")
    going, *_ = rows_of(moe.routing, nodes, EXPERTS // nodes, options.get("deduplicate", True))
    return moe.routing.counts(), going


def sent(ranks, nodes=1, backward=False, **options):
    """(traffic of the layer, counts of all ranks, rows to each node)."""
    run = tinydist.launch(program, ranks, nodes, options, backward)
    return run.between("begin", "end").traffic, *zip(*run.results)


def of_others(matrix):
    return [sum(row) - row[rank] for rank, row in enumerate(matrix)]


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("skew", [0, 1000])
@pytest.mark.parametrize("backward", [False, True])
def test_each_row_goes_there_and_back(ranks, skew, backward):
    traffic, counts, _ = sent(ranks, backward=backward, skew=skew)
    there = dispatch_cost(counts, DIM, NUMBER).sent
    rows = [[sum(row[to * EXPERTS // ranks : (to + 1) * EXPERTS // ranks]) for to in range(ranks)] for row in counts]
    back = of_others([[n * DIM * NUMBER for n in column] for column in zip(*rows)])
    told = COUNTS * (ranks - 1) // ranks
    times = 2 if backward else 1
    for rank in range(ranks):
        assert of_others(traffic)[rank] == told + times * (there[rank] + back[rank])
    assert sum(there) == sum(back)
    if skew:
        assert there[0] == 0 or ranks == 1 or EXPERTS // ranks < TOP_K


def across(traffic, per_node):
    """Bytes that each rank sends to other nodes, and to how many ranks."""
    ranks = range(len(traffic))
    apart = [[traffic[a][b] for b in ranks if a // per_node != b // per_node] for a in ranks]
    return [sum(row) for row in apart], [sum(n > 0 for n in row) for row in apart]


@pytest.mark.parametrize("ranks, nodes", [(4, 2), (8, 2), (8, 4)])
@pytest.mark.parametrize("deduplicate", [False, True])
def test_over_nodes_a_rank_sends_to_one_rank_of_each_and_each_copy_once(ranks, nodes, deduplicate):
    traffic, _, going = sent(ranks, nodes, deduplicate=deduplicate)
    nbytes, messages = across(traffic, ranks // nodes)
    assert messages == [nodes - 1] * ranks
    flat, counts, _ = sent(ranks)
    assert across(flat, ranks // nodes)[1] == [ranks - ranks // nodes] * ranks
    slots = min(TOP_K, EXPERTS // nodes) if deduplicate else 1
    for rank in range(ranks):
        node, local = divmod(rank, ranks // nodes)
        away = sum(n for to, n in enumerate(going[rank]) if to != node)
        home = sum(going[other * (ranks // nodes) + local][node] for other in range(nodes) if other != node)
        there = across_bytes(away, DIM, slots, NUMBER, NUMBER)[0]
        back = across_bytes(home, DIM, slots, NUMBER)[1]
        assert nbytes[rank] == (nodes - 1) * NUMBER + there + back
    assignments = sum(
        n
        for rank, row in enumerate(counts)
        for number, n in enumerate(row)
        if number // (EXPERTS // nodes) != rank // (ranks // nodes)
    )
    copies = sum(n for rank, row in enumerate(going) for to, n in enumerate(row) if to != rank // (ranks // nodes))
    assert copies < assignments if deduplicate else copies == assignments


@pytest.mark.parametrize("top_k, nodes", [(1, 4), (2, 2), (6, 4), (8, 8)])
def test_copies_of_a_token_if_experts_are_drawn_evenly(top_k, nodes):
    scores = torch.rand(20_000, 32, generator=drawn(0))
    node = scores.topk(top_k).indices // (32 // nodes)
    copies = torch.stack([(node == each).any(1) for each in range(nodes)]).sum(0).double().mean().item()
    assert copies_per_token(32, top_k, nodes) == pytest.approx(copies, rel=0.01)
    assert copies_per_token(32, 1, nodes) == pytest.approx(1) and copies_per_token(8, 8, 4) == 4


def test_over_nodes_it_is_slower_for_narrow_tokens_and_faster_for_wide_ones():
    """Of k = 8 experts on two nodes, 4 are on the other: one row there for four. Without that, never faster."""
    assert dispatch_seconds(4, 2) > 1.2 * dispatch_seconds(4, 1)
    wide = dispatch_seconds(1024, 1)
    assert dispatch_seconds(1024, 2) < 0.8 * wide < wide < dispatch_seconds(1024, 2, deduplicate=False)
