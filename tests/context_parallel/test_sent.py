"""Bytes that each rank sends: by formula, forward and backward."""

import pytest
import torch
import torch.distributed as dist
from context_parallel.sequences import WAYS
from sampled import sampled
from torch.distributed.device_mesh import init_device_mesh

import tinydist
from tinydist.context_parallel import hybrid_attention

N, HEADS, DIM, FP64 = 24, 24, 4, 8
WIDTH = HEADS * DIM


def one_pass(way, groups, backward, dtype, causal, balanced):
    p = dist.get_world_size()
    shapes = [(1, heads, N // p, DIM) for heads in (HEADS, groups, groups)]
    mine = [torch.zeros(shape, dtype=dtype, requires_grad=True) for shape in shapes]
    out = way(*mine, causal=causal, balanced=balanced)
    if backward:
        out.backward(torch.zeros_like(out))


def sent(way, p, groups, backward=False, dtype=torch.float64, causal=True, balanced=True):
    """Bytes, by every rank as many."""
    how = WAYS[way], groups, backward, dtype, causal, balanced
    run = tinydist.launch(one_pass, p, *how, observe="communication")
    totals = {sum(row) for row in run.traffic}
    assert len(totals) == 1, "no rank sends more than another"
    return totals.pop()


def ring_elements(p, groups):
    return 2 * N * WIDTH * groups / HEADS * (p - 1) / p


def ulysses_elements(p, groups):
    if groups % p == 0:
        return (2 + 2 * groups / HEADS) * N * WIDTH * (p - 1) / p**2
    return 2 * N * WIDTH * (p - 1) / p**2 + 2 * N * DIM * (p - 1) / p  # KV heads go to p / groups ranks each


@pytest.mark.parametrize("groups", [24, 4, 1])
@pytest.mark.parametrize("p", sampled([1, 3, 8], [1, 2, 3, 4, 8]))
@pytest.mark.parametrize("way", ["ring", "gather"])
def test_keys_and_values_pass_every_rank(way, p, groups):
    """Also those that the mask hides: in a ring they pass by."""
    assert sent(way, p, groups) == FP64 * ring_elements(p, groups)
    assert sent(way, p, groups, backward=True) == 3 * FP64 * ring_elements(p, groups)


@pytest.mark.parametrize("p, groups", [(1, 24), (2, 24), (8, 24), (4, 4), (8, 4), (8, 1), (3, 3)])
def test_ulysses_sends_heads(p, groups):
    assert sent("ulysses", p, groups) == FP64 * ulysses_elements(p, groups)
    assert sent("ulysses", p, groups, backward=True) == 2 * FP64 * ulysses_elements(p, groups)


@pytest.mark.parametrize("way", ["ring", "gather"])
def test_gradients_in_float32_for_16_bits(way):
    """Forward 2 bytes, backward 2 and 4."""
    assert sent(way, 4, 24, True, torch.bfloat16) == (2 + 2 + 4) * ring_elements(4, 24)


def test_the_paper_counts_p_for_p_minus_1():
    """4 N h / p: 12.5 % more than is sent on 8 ranks, and twice as much on 2."""
    for p, part in ((2, 1 / 2), (8, 7 / 8)):
        assert ulysses_elements(p, HEADS) == part * 4 * N * WIDTH / p


@pytest.mark.parametrize("across", [2, 4])
def test_ulysses_in_a_ring_sends_keys_of_fewer_heads_across(across):
    """Across: K and V of 1/within of the heads. Within: an all-to-all of what the node has."""
    p, within = 8, 8 // across

    def program():
        mesh = init_device_mesh("cpu", (across, within), mesh_dim_names=("ring", "ulysses"))
        q, k, v = (torch.zeros(1, HEADS, N // p, DIM, dtype=torch.float64) for _ in "qkv")
        hybrid_attention(q, k, v, mesh.get_group("ring"), mesh.get_group("ulysses"))

    sent = tinydist.launch(program, p, observe="communication").traffic[0]
    assert sum(sent[:within]) == FP64 * 4 * N / across * WIDTH * (within - 1) / within**2
    assert sum(sent[within:]) == FP64 * 2 * N * WIDTH / within * (across - 1) / across
