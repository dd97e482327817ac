"""Virtual time: what a run would have taken on a cluster, held against the formulas of hardware/costs.py."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from random_programs import RANKS, compute_of, programs, run_steps
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import tinydist
from tinydist.hardware import Cluster, Device, Link, Tiles, costs, find_cluster, find_device

ROOT = Path(__file__).resolve().parents[2]
RATES = ("float64", "float32", "bfloat16", "int64")
INSTANT = Device("instant", dict.fromkeys(RATES, math.inf), 1e12, math.inf)  # computes in no time: what is left is sent
SLOW = Device("slow", dict.fromkeys(RATES, 1e9), 1e12, 1e9, launch_overhead=1e-6)
WIRE, NETWORK = Link("wire", 3e-6, 7e9), Link("network", 11e-6, 2e9)
FLOAT = 4  # bytes


def node(ranks, device=INSTANT):
    return Cluster(device, ranks, WIRE)


def two_nodes(per_node, device=INSTANT, cards=None):
    return Cluster(device, per_node, WIRE, nodes=2, inter_node=NETWORK, cards_per_node=cards)


def exactly(seconds):
    return pytest.approx(seconds, rel=1e-12, abs=0)


def length(event):
    return event.end - event.start


# Algorithms written with messages.


def exchange(outbox, inbox, to, from_):
    for work in (dist.isend(outbox, to), dist.irecv(inbox, from_)):
        work.wait()


def batched_exchange(outbox, inbox, to, from_):
    operations = [dist.P2POp(dist.isend, outbox, to), dist.P2POp(dist.irecv, inbox, from_)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def ring_reduce_scatter(parts, ring, exchange=exchange):
    """Afterwards ``parts[i]`` is complete on the i-th rank of ``ring``."""
    p, i = len(ring), ring.index(dist.get_rank())
    inbox = torch.empty_like(parts[0])
    for step in range(1, p):
        exchange(parts[(i - step) % p], inbox, ring[(i + 1) % p], ring[i - 1])
        parts[(i - step - 1) % p].add_(inbox)


def ring_all_gather(parts, ring, exchange=exchange):
    p, i = len(ring), ring.index(dist.get_rank())
    for step in range(p - 1):
        exchange(parts[(i - step) % p], parts[(i - step - 1) % p], ring[(i + 1) % p], ring[i - 1])


def ring_all_reduce(x, ring, exchange=exchange):
    parts = x.chunk(len(ring))
    ring_reduce_scatter(parts, ring, exchange)
    ring_all_gather(parts, ring, exchange)


def of_ring(floats, exchange):
    x = torch.arange(floats, dtype=torch.float32) + dist.get_rank()
    ring_all_reduce(x, range(dist.get_world_size()), exchange)
    return x


@pytest.mark.parametrize("exchange", [exchange, batched_exchange])
@pytest.mark.parametrize("p", [2, 3, 4, 8])
@pytest.mark.parametrize("share", [1, 1000, 250_000])
def test_a_ring_all_reduce_of_messages_takes_what_its_formula_says(p, share, exchange):
    run = tinydist.launch(of_ring, p, p * share, exchange, cluster=node(p))
    n, alpha, beta = p * share * FLOAT, WIRE.latency, WIRE.bandwidth
    assert run.seconds == exactly(2 * (p - 1) * (alpha + n / (p * beta)))
    assert run.seconds == exactly(costs.ring_all_reduce(n, p, WIRE))
    for rank, sent in enumerate(run.traffic):
        assert sent == [2 * (p - 1) * n / p if other == (rank + 1) % p else 0 for other in range(p)]
    want = p * torch.arange(p * share, dtype=torch.float32) + sum(range(p))
    assert all(torch.equal(result, want) for result in run.results)


def test_the_same_ring_on_a_slow_device_takes_its_operators_time_besides():
    run = tinydist.launch(of_ring, 4, 4000, exchange, cluster=node(4, SLOW))
    events = run.trace.of(0)
    messages = [length(event) for event in events if event.name == "message" and event.transfer.ranks[0] == 0]
    assert sum(messages) == exactly(costs.ring_all_reduce(4000 * FLOAT, 4, WIRE))
    assert run.seconds == exactly(sum(messages) + compute_of(events))


def of_two_levels(floats):
    """A reduce-scatter in the node, an all-reduce across nodes, an all-gather in the node."""
    rank, x = dist.get_rank(), torch.ones(floats)
    home = [range(4), range(4, 8)][rank // 4]
    parts = x.chunk(4)
    ring_reduce_scatter(parts, home)
    ring_all_reduce(parts[rank % 4], [rank % 4, rank % 4 + 4])
    ring_all_gather(parts, home)
    return x


@pytest.mark.parametrize("floats", [8, 8000, 800_000])
def test_a_two_level_all_reduce_of_messages_takes_what_its_formula_says(floats):
    cluster = find_cluster("2 x 4")
    run = tinydist.launch(of_two_levels, 8, floats, cluster=replace(cluster, device=INSTANT))
    between = cluster.inter_node_shared
    assert run.seconds == exactly(costs.hierarchical_all_reduce(floats * FLOAT, 4, 2, cluster.intra_node, between))
    assert all(torch.equal(result, torch.full((floats,), 8.0)) for result in run.results)


def of_star(floats, one_by_one):
    """All send to rank 0, which sends the sum back."""
    rank, others = dist.get_rank(), range(1, dist.get_world_size())
    x = torch.ones(floats)
    if rank:
        dist.send(x, 0)
        dist.recv(x, 0)
    elif one_by_one:
        inbox = torch.empty_like(x)
        for other in others:
            dist.recv(inbox, other)
            x += inbox
        for other in others:
            dist.send(x, other)
    else:
        inboxes = [torch.empty_like(x) for _ in others]
        for work in [dist.irecv(inbox, other) for inbox, other in zip(inboxes, others, strict=True)]:
            work.wait()
        x += sum(inboxes)
        for work in [dist.isend(x, other) for other in others]:
            work.wait()
    return x[0].item()


def test_a_star_that_takes_its_messages_one_by_one():
    run = tinydist.launch(of_star, 5, 1000, True, cluster=node(5))
    assert run.seconds == exactly(costs.star_all_reduce(1000 * FLOAT, 5, WIRE))


def test_the_roots_port_is_the_bottleneck_of_a_star():
    """All at once, latencies overlap; the bytes cannot, since they all pass one port."""
    p, n = 5, 100_000 * FLOAT
    run = tinydist.launch(of_star, p, 100_000, False, cluster=node(p))
    assert run.results == [5.0] * p
    assert run.seconds == exactly(2 * (WIRE.latency + (p - 1) * n / WIRE.bandwidth))
    assert run.traffic == [[0] + [n] * (p - 1)] + [[n] + [0] * (p - 1)] * (p - 1)


# Collectives.


def of_collective(name, floats):
    """One collective of ``floats`` floats, in the sense of hardware/costs.py."""
    p, whole = dist.get_world_size(), torch.ones(floats)
    part, parts = torch.ones(floats // p), list(torch.ones(floats).chunk(p))
    at_root = parts if dist.get_rank() == 0 else None
    {
        "all_reduce": lambda: dist.all_reduce(whole),
        "reduce_scatter": lambda: dist.reduce_scatter(part, parts),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_single(part, whole),
        "all_gather": lambda: dist.all_gather(parts, part),
        "all_gather_into_tensor": lambda: dist.all_gather_single(whole, part),
        "broadcast": lambda: dist.broadcast(whole, 0),
        "reduce": lambda: dist.reduce(whole, 0),
        "gather": lambda: dist.gather(part, at_root),
        "scatter": lambda: dist.scatter(part, at_root),
        "all_to_all": lambda: dist.all_to_all(parts, list(torch.ones(floats).chunk(p))),
        "all_to_all_single": lambda: dist.all_to_all_single(whole, torch.ones(floats)),
        "barrier": lambda: dist.barrier(),
    }[name]()


FORMULAS = {  # seconds; bytes that all ranks together send, in units of the size
    "all_reduce": (costs.ring_all_reduce, lambda p: 2 * (p - 1)),
    "reduce_scatter": (costs.ring_reduce_scatter, lambda p: p - 1),
    "reduce_scatter_tensor": (costs.ring_reduce_scatter, lambda p: p - 1),
    "all_gather": (costs.ring_all_gather, lambda p: p - 1),
    "all_gather_into_tensor": (costs.ring_all_gather, lambda p: p - 1),
    "broadcast": (costs.tree_broadcast, lambda p: p - 1),
    "reduce": (costs.tree_reduce, lambda p: p - 1),
    "gather": (costs.star_gather, lambda p: (p - 1) / p),
    "scatter": (costs.star_gather, lambda p: (p - 1) / p),
    "all_to_all": (costs.pairwise_all_to_all, lambda p: p - 1),
    "all_to_all_single": (costs.pairwise_all_to_all, lambda p: p - 1),
    "barrier": (lambda n, p, link: costs.tree_broadcast(0, p, link), lambda p: 0),
}


@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("name", FORMULAS)
def test_a_collective_takes_and_sends_what_its_formula_says(name, p):
    floats = p * 5000
    run = tinydist.launch(of_collective, p, name, floats, cluster=node(p))
    seconds, sent = FORMULAS[name]
    assert run.seconds == exactly(seconds(floats * FLOAT, p, WIRE))
    assert sum(map(sum, run.traffic)) == exactly(sent(p) * floats * FLOAT)


def test_an_all_reduce_over_nodes_is_hierarchical():
    run = tinydist.launch(of_collective, 8, "all_reduce", 8000, cluster=two_nodes(4))
    assert run.seconds == exactly(costs.hierarchical_all_reduce(8000 * FLOAT, 4, 2, WIRE, NETWORK))


def test_with_one_card_a_node_the_ranks_of_a_node_share_it():
    cluster = two_nodes(4, cards=1)
    run = tinydist.launch(of_collective, 8, "all_reduce", 8000, cluster=cluster)
    assert run.seconds == exactly(costs.hierarchical_all_reduce(8000 * FLOAT, 4, 2, WIRE, cluster.inter_node_shared))


def test_a_collective_starts_when_its_last_rank_is_there():
    def program():
        if dist.get_rank() == 2:
            torch.ones(250_000).add_(1)
        dist.all_reduce(torch.ones(1000))

    run = tinydist.launch(program, 3, cluster=node(3, SLOW))
    last = run.trace.of(2, "compute")[-1].start
    collectives = [event for event in run.trace.events if event.name == "all_reduce"]
    assert [(event.rank, event.start) for event in collectives] == [(0, last), (1, last), (2, last)]
    early = run.trace.of(0, "compute")
    assert early[-1].name == "wait" and early[-1].start == early[-2].end and early[-1].end == collectives[0].end


def test_an_operator_takes_what_the_roofline_says():
    def program():
        a = torch.ones(64, 64)
        a @ a
        torch.empty(100)  # no kernel
        a.view(-1).t()

    run = tinydist.launch(program, 1, cluster=node(1, SLOW))
    ones, product = run.trace.of(0)
    assert (ones.name, product.name) == ("ones", "mm")
    assert length(product) == exactly(costs.op_time(SLOW, 2 * 64**3, 3 * 64 * 64 * FLOAT))


def test_products_take_their_tiles_and_waves_where_a_device_has_any():
    """Of two matmuls it is more than of one, and as long in place."""
    tiled = replace(SLOW, memory_bandwidth=1e11, launch_overhead=0.0, tiles=Tiles((300, 300, 300), 3))

    def program():
        a, b, sum = torch.empty(2, 200, 70), torch.empty(2, 70, 300), torch.empty(2, 200, 300)
        a[0] @ b[0]
        torch.addmm(sum[0], a[0], b[0])
        torch.bmm(a, b)
        sum.baddbmm_(a, b)
        sum += 1

    events = tinydist.launch(program, 1, cluster=node(1, tiled)).trace.of(0)
    within = tiled.tiles.rate_within(1e9, 1e11)
    one, two = (tiled.tiles.seconds((batch, 200, 300, 70), within, 1e11) for batch in (1, 2))
    assert one < two
    *products, added = map(length, events)
    assert products == exactly([one, one, two, two])
    assert added == exactly(2 * 2 * 200 * 300 * FLOAT / 1e11)


def chain_of(kernels):
    x = torch.empty(50, 50)
    for _ in range(kernels):
        x.add_(1)


@pytest.mark.parametrize("kernels", [1, 2, 7])
@pytest.mark.parametrize("overhead", [1e-6, 50e-6], ids=["hidden", "not hidden"])
def test_a_device_that_runs_ahead_hides_launches_behind_the_operators_before(kernels, overhead):
    """The longer of both sets the pace: the CPU launching one after another, or the device computing them."""
    each = costs.kernel_time(SLOW, 2500, 2 * 50 * 50 * FLOAT)
    assert 1e-6 < each < 50e-6
    ahead = replace(SLOW, launch_overhead=overhead, runs_ahead=True)
    behind = replace(ahead, runs_ahead=False)
    run = tinydist.launch(chain_of, 1, kernels, cluster=node(1, ahead))
    assert run.seconds == exactly(overhead + each + (kernels - 1) * max(overhead, each))
    assert run.on(node(1, behind)).seconds == exactly(kernels * (overhead + each))


def test_launches_are_hidden_while_a_rank_waits_for_a_message():
    def program():
        x = torch.empty(50, 50)
        dist.all_reduce(x)
        for _ in range(3):
            x.add_(1)

    device = replace(SLOW, launch_overhead=1e-6, runs_ahead=True)
    each = costs.kernel_time(SLOW, 2500, 2 * 50 * 50 * FLOAT)
    sent = costs.ring_all_reduce(50 * 50 * FLOAT, 4, WIRE)
    assert sent > 3 * device.launch_overhead
    assert tinydist.launch(program, 4, cluster=node(4, device)).seconds == exactly(sent + 3 * each)


@pytest.mark.parametrize("name", ["V100", "A100 80GB", "H100", "B200"])
def test_gpus_run_ahead_and_a_cpu_does_not(name):
    assert find_device(name).runs_ahead and not find_device("laptop CPU").runs_ahead


def test_attention_counts_as_on_an_accelerator():
    """Two products of [T, D] by [D, T] and [T, T] by [T, D] forward, five backward: T T D multiply-adds each."""

    def program():
        q, k, v = torch.ones(3, 2, 4, 16, 8, requires_grad=True).unbind()  # [B, H, T, D]
        nn.functional.scaled_dot_product_attention(q, k, v).sum().backward()

    flops = {}
    for entry in tinydist.launch(program, 1).record.programs[0]:
        if "dot_product" in getattr(entry, "name", ""):
            flops["backward" in entry.name] = entry.flops
    product = 2 * (2 * 4) * 16 * 16 * 8
    assert flops == {False: 2 * product, True: 5 * product}


# Overlap.


def of_buckets(buckets, overlap):
    """A product that makes a gradient, then its all-reduce; the next product need not wait for it."""
    x, gradients, works = torch.ones(100, 100), [torch.empty(100, 100) for _ in range(buckets)], []
    for gradient in gradients:
        torch.mm(x, x, out=gradient)
        works.append(dist.all_reduce(gradient, async_op=overlap))
    if overlap:
        for work in works:
            work.wait()


@pytest.mark.parametrize("compute", [0.25, 1, 4])  # beside what an all-reduce takes
def test_overlap_saves_the_lesser_of_computing_and_sending_for_all_buckets_but_one(compute):
    p, k = 4, 5
    a = costs.ring_all_reduce(100 * 100 * FLOAT, p, WIRE)
    c = compute * a
    device = Device("steady", {"float32": 2 * 100**3 / c}, 1e12, math.inf)
    runs = [tinydist.launch(of_buckets, p, k, overlap, cluster=node(p, device)) for overlap in (False, True)]
    blocking, overlapping = (run.seconds for run in runs)
    assert blocking == exactly(k * (c + a))
    assert overlapping == exactly(k * max(a, c) + min(a, c))
    assert blocking - overlapping == pytest.approx((k - 1) * min(a, c), rel=1e-9)


def layers():
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(6)))


def of_backward(overlap):
    """Each gradient is all-reduced as soon as backward has made it."""
    model, works = layers(), []
    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(
            lambda weight: works.append(dist.all_reduce(weight.grad, async_op=overlap))
        )
    model(torch.ones(64, 64)).sum().backward()
    for work in works:
        if work:
            work.wait()


def seconds_of(events):
    return sum(map(length, events))


def both(first, second):
    """Seconds in which an event of each is under way."""
    return sum(max(0.0, min(a.end, b.end) - max(a.start, b.start)) for a in first for b in second)


def streams(run, rank=0):
    events = run.trace.of(rank)
    waits = [event for event in events if event.name == "wait"]
    computing = [event for event in events if event.stream == "compute" and event.name != "wait"]
    return computing, waits, [event for event in events if event.stream != "compute"]


def test_gradients_are_sent_while_backward_goes_on():
    blocking, overlapping = (
        tinydist.launch(of_backward, 4, overlap, cluster=node(4, SLOW)) for overlap in (False, True)
    )
    computing, _, sending = streams(blocking)
    assert both(computing, sending) == 0
    assert blocking.seconds == exactly(seconds_of(computing) + seconds_of(sending))
    computing, _, sending = streams(overlapping)
    hidden = both(computing, sending)
    assert len(sending) == 6 and hidden > 0
    assert blocking.seconds - overlapping.seconds == pytest.approx(hidden, rel=1e-9)
    last_two = sending[-2:]  # between two of them, backward's products; after the last, nothing but its end
    assert overlapping.seconds == exactly(max(last_two[-1].end, computing[-1].end))


def test_torchs_own_ddp_overlaps():
    def program():
        ddp = DDP(layers(), bucket_cap_mb=64 * 64 * FLOAT / 2**20)
        for _ in range(2):  # the first step's buckets are those of construction
            ddp(torch.ones(64, 64)).sum().backward()

    run = tinydist.launch(program, 4, cluster=node(4, SLOW))
    computing, waiting, sending = streams(run)
    sums = [event for event in sending if event.name == "all_reduce"]
    hidden = both(computing, sums)
    assert len(sums) >= 6 and hidden > 0.5 * seconds_of(sums)
    assert run.seconds == exactly(seconds_of(computing) + seconds_of(waiting))
    assert run.seconds == exactly(seconds_of(computing) + seconds_of(sending) - both(computing, sending))


# What is shared.


def of_pairs(floats, both):
    """Ranks 0 and 1 stand in one node, 2 and 3 in another."""
    groups = [dist.new_group(pair) for pair in ([0, 2], [1, 3])]
    mine = dist.get_rank() % 2
    if both or mine == 0:
        dist.all_reduce(torch.ones(floats), group=groups[mine])


def test_two_groups_that_share_a_network_card_get_half_each():
    alone, together = (
        tinydist.launch(of_pairs, 4, 10_000, both, cluster=two_nodes(2, cards=1)).seconds for both in (False, True)
    )
    assert alone == exactly(costs.ring_all_reduce(10_000 * FLOAT, 2, NETWORK))
    assert together == exactly(costs.ring_all_reduce(10_000 * FLOAT, 2, NETWORK.shared_by(2)))
    with_two_cards = tinydist.launch(of_pairs, 4, 10_000, True, cluster=two_nodes(2))
    assert with_two_cards.seconds == exactly(alone)


def test_who_comes_later_shares_what_is_left():
    """A message of n bytes; after t seconds of bytes another: both at half speed until the first is through."""
    n, later = 4_000_000, 2e-4
    link = Link("no latency", 0.0, 10e9)

    def program():
        rank = dist.get_rank()
        if rank in (1, 3):
            torch.ones(int(later * 1e9) // FLOAT)
        x = torch.empty(n // FLOAT)
        dist.send(x, rank + 2) if rank < 2 else dist.recv(x, rank - 2)

    device = Device("writer", {"float32": math.inf}, 1e12, 1e9)
    cluster = Cluster(device, 2, link, nodes=2, inter_node=link, cards_per_node=1)
    run = tinydist.launch(program, 4, cluster=cluster)
    first, second = (event for event in run.trace.events if event.name == "message" and event.rank < 2)
    alone = n / link.bandwidth
    assert (first.start, second.start) == (0.0, exactly(later))
    assert first.end == exactly(later + 2 * (alone - later))
    assert second.end == exactly(2 * alone)


def test_collectives_of_one_group_run_one_after_another_those_of_others_at_once():
    def program(groups, times):
        made = [dist.new_group(ranks) for ranks in groups] * times
        works = [dist.all_reduce(torch.ones(1000), group=g, async_op=True) for g in made if dist.get_rank(g) >= 0]
        for work in works:
            work.wait()

    one = costs.ring_all_reduce(1000 * FLOAT, 2, WIRE)
    same = tinydist.launch(program, 4, [[0, 1]], 3, cluster=node(4))
    others = tinydist.launch(program, 4, [[0, 1], [2, 3]], 1, cluster=node(4))
    assert same.seconds == exactly(3 * one)
    assert others.seconds == exactly(one)


# One run, many clusters; the same times always.


def test_a_run_is_put_on_another_cluster_without_running_again():
    calls = []

    def program():
        calls.append(dist.get_rank())
        dist.all_reduce(torch.ones(8000))
        return dist.get_rank()

    run = tinydist.launch(program, 8, cluster=node(8))
    other = run.on(two_nodes(4))
    assert run.seconds == exactly(costs.ring_all_reduce(8000 * FLOAT, 8, WIRE))
    assert other.seconds == exactly(costs.hierarchical_all_reduce(8000 * FLOAT, 4, 2, WIRE, NETWORK))
    assert run.on("H100 pod").seconds < run.on("laptop").seconds
    assert run.on(node(8)).trace.events == run.trace.events
    assert other.results is run.results and calls == list(range(8))


def test_measured_operators_take_the_processors_time():
    def program():
        x = torch.ones(300, 300)
        for _ in range(10):
            x = x @ x

    run = tinydist.launch(program, 1, compute="measured", cluster=node(1))
    assert run.seconds > 0  # INSTANT would take none


# What holds for every program.


@given(programs)
def test_laws_of_virtual_time(steps):
    cluster = Cluster(SLOW, 2, WIRE, nodes=2, inter_node=NETWORK, cards_per_node=1)
    run = tinydist.launch(run_steps, RANKS, steps, cluster=cluster)
    trace = run.trace
    for rank in range(RANKS):
        events = trace.of(rank)
        assert trace.seconds >= compute_of(events)
        assert all(event.end > event.start for event in events if event.name == "wait")
        for stream in {event.stream for event in events}:
            for before, after in pairwise(trace.of(rank, stream)):
                assert before.end <= after.start, "two events of one stream overlap"
    half = replace(
        cluster,
        device=Device("half", {name: rate / 2 for name, rate in SLOW.peak.items()}, 1e12, 0.5e9, 2e-6),
        intra_node=Link("half", 2 * WIRE.latency, WIRE.bandwidth / 2),
        inter_node=Link("half", 2 * NETWORK.latency, NETWORK.bandwidth / 2),
    )
    assert run.on(half).seconds == exactly(2 * run.seconds), "all at half the speed takes twice the time"
    shuffled = tinydist.launch(run_steps, RANKS, steps, cluster=cluster, schedule="shuffle", seed=1)
    assert [event[:5] for event in shuffled.trace.events] == [event[:5] for event in trace.events]
    assert shuffled.traffic == run.traffic


@given(programs)
def test_half_the_bandwidth_is_never_faster(steps):
    run = tinydist.launch(run_steps, RANKS, steps, cluster=node(RANKS, SLOW))
    half = Cluster(SLOW, RANKS, Link("half", WIRE.latency, WIRE.bandwidth / 2))
    slower = run.on(half).seconds
    assert run.seconds * (1 - 1e-12) <= slower <= 2 * run.seconds * (1 + 1e-12)


# Errors.


def nothing():
    pass


def test_clusters_that_cannot_be():
    with pytest.raises(ValueError, match=r"cluster must be a hardware\.Cluster or one of 'laptop', .* got 'H200 moon'"):
        tinydist.launch(nothing, 2, cluster="H200 moon")
    with pytest.raises(ValueError, match="1 node x 8 devices = 8, but 9 ranks were requested"):
        tinydist.launch(nothing, 9, cluster="H100 node")
    with pytest.raises(ValueError, match="4 devices = 4, but 8 ranks"):
        tinydist.launch(nothing, 8).on(node(4)).seconds  # noqa: B018
    with pytest.raises(ValueError, match="link 'worse than none': bandwidth must be > 0 bytes/s, got -1"):
        tinydist.launch(nothing, 2, cluster=Cluster(INSTANT, 2, Link("worse than none", 0, -1)))
    with pytest.raises(ValueError, match="compute must be one of modeled, measured, got 'guessed'"):
        tinydist.launch(nothing, 2, compute="guessed")


@pytest.mark.parametrize("what", ["trace", "seconds", "traffic", "memory"])
def test_a_run_that_was_not_observed_has_no_trace(what):
    with pytest.raises(RuntimeError, match="not observed: it ran on processes, or was launched with observe=False"):
        getattr(tinydist.launch(nothing, 2, observe=False), what)


def test_a_run_on_processes_has_no_trace():
    run = tinydist.launch(dist.get_rank, 2, backend="gloo")
    assert run.results == [0, 1]
    with pytest.raises(RuntimeError, match="it ran on processes"):
        run.trace  # noqa: B018


def test_two_groups_of_the_same_ranks_have_a_stream_each():
    def program():
        twin = dist.new_group([0, 1])
        works = [dist.all_reduce(torch.ones(1000), group=group, async_op=True) for group in (None, twin)]
        for work in works:
            work.wait()

    first, second = (e for e in tinydist.launch(program, 2).trace.of(0) if e.name == "all_reduce")
    assert first.stream != second.stream
    assert second.start < first.end
