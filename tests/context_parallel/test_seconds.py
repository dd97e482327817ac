"""Virtual time: a ring hides its messages behind attention, the others do not; by formula."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from context_parallel.sequences import WAYS

import tinydist
from tinydist.hardware import find_cluster
from tinydist.hardware.costs import p2p_time, pairwise_all_to_all, ring_all_gather

T, H, G, D, P = 4096, 32, 8, 128, 4  # tokens of a rank; Llama 3 8B
MESSAGE = 2 * T * G * D * 2  # bytes of K and V
POD = find_cluster("H100 pod")


def cluster_at(bandwidth):
    """Attention alone takes time: merging, which memory holds up, none."""
    device = replace(POD.device, launch_overhead=0.0, memory_bandwidth=1e30)
    link = replace(POD.intra_node, bandwidth=bandwidth, fabric=None)
    return replace(POD, device=device, nodes=1, intra_node=link)


def forward(way, causal, balanced):
    q, k, v = (torch.empty(1, heads, T, D, dtype=torch.bfloat16) for heads in (H, G, G))
    way(q, k, v, causal=causal, balanced=balanced)


def seconds(way, cluster, causal=False, balanced=False):
    return tinydist.launch(forward, P, WAYS[way], causal, balanced, fake=True, cluster=cluster).seconds


def block(cluster):
    return 4 * T * T * H * D / cluster.device.peak_of("bfloat16")


@pytest.mark.parametrize("bandwidth", [450e9, 20e9])
def test_time_of_a_ring(bandwidth):
    """A step takes what takes longer; the last one has no message. Causal and zig-zag, half of the FLOPs."""
    cluster = cluster_at(bandwidth)
    compute, message = block(cluster), p2p_time(MESSAGE, cluster.intra_node)
    expected = compute + (P - 1) * max(compute, message)
    assert seconds("ring", cluster) == pytest.approx(expected, rel=1e-9)
    expected = compute / 2 + (P - 1) * max(compute / 2, message)
    assert seconds("ring", cluster, causal=True, balanced=True) == pytest.approx(expected, rel=1e-9)


def test_contiguous_parts_make_the_last_rank_work_longest():
    """Half a block of its own, and p - 1 whole ones."""
    cluster = cluster_at(450e9)
    assert seconds("ring", cluster, causal=True) == pytest.approx((P - 1 / 2) * block(cluster), rel=1e-9)


def test_others_wait_first():
    cluster = cluster_at(20e9)
    gather = ring_all_gather(P * MESSAGE, P, cluster.intra_node)
    assert seconds("gather", cluster.with_algorithm("ring")) == pytest.approx(gather + P * block(cluster), rel=1e-9)
    queries = T * H * D * 2
    trade = sum(pairwise_all_to_all(n, P, cluster.intra_node) for n in (queries, queries, MESSAGE / 2, MESSAGE / 2))
    assert seconds("ulysses", cluster) == pytest.approx(trade + P * block(cluster), rel=1e-9)


@pytest.mark.parametrize("heads, dim", [(8, 64), (32, 128)])
def test_what_hides_depends_on_tokens_alone(heads, dim):
    """c >= F/B tokens a rank for as many KV heads as heads (Ring Attention, 2023, section 3), at any width."""
    cluster = cluster_at(100e9)
    least = cluster.device.peak_of("bfloat16") / 100e9

    def exposed(tokens):
        def program():
            ring = WAYS["ring"]
            ring(*(torch.empty(1, heads, tokens, dim, dtype=torch.bfloat16) for _ in "qkv"), causal=False)

        run = tinydist.launch(program, P, fake=True, cluster=cluster)
        return run.seconds - P * 4 * tokens**2 * heads * dim / cluster.device.peak_of("bfloat16")

    latency = P * cluster.intra_node.latency
    assert exposed(int(1.1 * least)) <= 1e-9
    assert exposed(int(0.8 * least)) > latency


def test_a_rank_never_holds_all_keys_in_a_ring():
    def program(way):
        dist.barrier()
        forward(way, True, True)

    def peak(way):
        return tinydist.launch(program, P, WAYS[way], fake=True).memory[0].peak

    assert peak("gather") - peak("ring") > (P - 2.5) * MESSAGE
