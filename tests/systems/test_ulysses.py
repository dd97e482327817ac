"""DeepSpeed's own Ulysses on simulated ranks: the same result as one rank, and the bytes of our formula."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

import tinydist

B, T, H, D, RANKS = 1, 16, 4, 8, 4


def whole():
    torch.manual_seed(0)
    return torch.randn(3, B, T, H, D, dtype=torch.float64)


def attend(q, k, v):  # [B, T, H, d], as DeepSpeed has them
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def test_it_sends_what_the_formula_says(systems):
    import deepspeed
    from deepspeed.sequence.layer import DistributedAttention

    def program():
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it is compiled in C++
        deepspeed.init_distributed("gloo", verbose=False)
        layer = DistributedAttention(attend, dist.group.WORLD, scatter_idx=2, gather_idx=1)
        return layer(*whole().chunk(RANKS, 2)[dist.get_rank()].contiguous(), 0)

    run = tinydist.launch(program, RANKS, backend="simulated")
    torch.testing.assert_close(torch.cat(run.results, 1), attend(*whole()), rtol=0, atol=1e-12)
    elements = 4 * T * H * D * (RANKS - 1) / RANKS**2
    assert [sum(row) / 8 for row in run.traffic] == [elements] * RANKS
