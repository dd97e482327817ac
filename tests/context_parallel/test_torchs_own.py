"""Beside torch's context parallelism: the same shards, results and gradients; one message less in backward."""

import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from context_parallel.sequences import WAYS, inputs, on_ranks
from tiny_training import assert_every_rank_has
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._context_parallel import _attention as theirs

import tinydist
from tinydist.context_parallel import positions, ring_attention, shard_sequence

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def test_shards_are_the_same():
    def program():
        x = torch.arange(16.0).view(1, 16)
        with context_parallel(init_device_mesh("cpu", (4,)), buffers=[x], buffer_seq_dims=[1]):
            return x.flatten().tolist(), positions(16).tolist()

    assert all(their == mine for their, mine in on_ranks(program, 4))


NOT_DISPATCHED = """
import torch
import torch.nn.functional as F
import tinydist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel

def program():
    q, k, v = (torch.randn(2, 4, 16, 4) for _ in range(3))
    with context_parallel(init_device_mesh("cpu", (2,)), buffers=[q, k, v], buffer_seq_dims=[2, 2, 2]):
        F.scaled_dot_product_attention(q, k, v, is_causal=True)

tinydist.launch(program, 2)
"""


def test_on_processors_torch_does_not_dispatch_attention():
    """Its handlers are those of the GPU's kernels. In a process without the rule that ``tinydist.gpus`` registers."""
    run = subprocess.run([sys.executable, "-c", NOT_DISPATCHED], capture_output=True, text=True)
    assert run.returncode == 1
    message = "aten._scaled_dot_product_flash_attention_for_cpu.default does not have a sharding strategy registered"
    assert message in run.stderr


def own_backward(grad_out, query, key, value, out, logsumexp, is_causal):
    return BACKWARD(grad_out, query, key, value, out, logsumexp, 0.0, is_causal)


def torchs_ring(tensors, backward=True):
    """Its algorithm, with the processor's kernel."""
    group = dist.group.WORLD
    q, k, v = (shard_sequence(each.detach(), dim=2) for each in tensors)
    out, lse = theirs._templated_ring_attention(group, 2, FORWARD, q, k, v, is_causal=True)
    if not backward:
        return out
    found = theirs._templated_ring_attention_backward(
        group, 2, own_backward, torch.ones_like(out), "grad_out", q, k, v, out, lse, True
    )
    return out, *found


def our_ring(tensors, backward=True):
    mine = [shard_sequence(each.detach(), dim=2).requires_grad_() for each in tensors]
    out = ring_attention(*mine)
    return (out.detach(), *torch.autograd.grad(out, mine, torch.ones_like(out))) if backward else out.detach()


@pytest.mark.parametrize("ranks", [2, 4])
def test_results_and_gradients(ranks):
    """At lengths that 2 p divides: others it does not balance. In float32, to which it converts what it adds up."""
    tensors = inputs(16, heads=4, groups=4, dtype=torch.float32)
    for mine, their in zip(on_ranks(our_ring, ranks, tensors), on_ranks(torchs_ring, ranks, tensors)):
        assert_every_rank_has(their, [mine], atol=16 * torch.finfo(torch.float32).eps * 8)


def test_bytes():
    """Gradients pass p times there, p - 1 times here: the first addition is at the next rank, not at home."""
    p, elements = 4, 2 * 2 * 4 * 4 * 4  # of K and V of a rank: [2, B, H, T/p, d]

    def sent(program, backward):
        tensors = inputs(16, heads=4, groups=4, dtype=torch.float32)
        return sum(tinydist.launch(program, p, tensors, backward, observe="communication").traffic[0]) / 4

    assert sent(torchs_ring, False) == sent(our_ring, False) == (p - 1) * elements
    assert sent(torchs_ring, True) == (3 * p - 2) * elements
    assert sent(our_ring, True) == (3 * p - 3) * elements


def test_torch_gathers_unless_it_is_told_to_rotate():
    """So by default a rank of torch holds all keys and values, as ``gather_attention`` does."""
    assert theirs._cp_options.rotate_method is theirs._RotateMethod.ALL_GATHER
    assert {"ring", "gather"} <= WAYS.keys()
