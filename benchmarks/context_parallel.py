"""Context parallelism on two gloo processes of this machine, beside torch's own ring.

    python benchmarks/context_parallel.py

Torch dispatches attention of GPUs only, so its ring is called with the processor's kernel put in. All compute causal
attention, forward and backward, in float32 and with one thread; the fastest of some calls. What is published of GPUs
is in hardware/published_context_parallel.py, and notebook 16b holds predictions against it; tests/systems runs
DeepSpeed's Ulysses.
"""

import time
from functools import partial

import torch
import torch.distributed as dist

import tinydist
from tinydist.context_parallel import gather_attention, ring_attention, shard_sequence, ulysses_attention

RANKS, TOKENS, HEADS, DIM, CALLS = 2, 2048, 8, 64, 7


def own_backward(grad_out, query, key, value, out, logsumexp, is_causal):
    from tinydist.context_parallel.block import aten  # a name of torch's that can be pickled nowhere else

    kernel = aten._scaled_dot_product_flash_attention_for_cpu_backward
    return kernel(grad_out, query, key, value, out, logsumexp, 0.0, is_causal)


def torchs_ring(q, k, v, dout, rotate):
    from torch.distributed.tensor.experimental._context_parallel import _attention as theirs

    from tinydist.context_parallel.block import aten

    theirs._cp_options.rotate_method = getattr(theirs._RotateMethod, rotate)
    kernel, group = aten._scaled_dot_product_flash_attention_for_cpu, dist.group.WORLD
    q, k, v = (each.detach() for each in (q, k, v))
    out, lse = theirs._templated_ring_attention(group, 2, kernel, q, k, v, is_causal=True)
    how = (dout, "grad_out", q, k, v, out, lse, True)
    return out, theirs._templated_ring_attention_backward(group, 2, own_backward, *how)


def ours(way, q, k, v, dout):
    out = way(q, k, v)
    return out.detach(), torch.autograd.grad(out, (q, k, v), dout)


def program(call, balanced):
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    whole = [torch.randn(1, HEADS, TOKENS, DIM, generator=generator) for _ in range(4)]
    *qkv, dout = (shard_sequence(each, dim=2, balanced=balanced) for each in whole)
    qkv = [each.requires_grad_() for each in qkv]
    took = []
    for _ in range(CALLS + 1):
        dist.barrier()
        began = time.perf_counter()
        out, gradients = call(*qkv, dout)
        dist.barrier()
        took.append(time.perf_counter() - began)
    return min(took[1:]), out, gradients


def measured(name, call, balanced=True):
    results = tinydist.launch(partial(program, call, balanced), RANKS, backend="gloo").results
    seconds = max(seconds for seconds, *_ in results)
    print(f"{name:32} {1e3 * seconds:7.1f} ms", flush=True)
    return seconds, results


def main():
    print(f"{RANKS} gloo processes, {TOKENS:,} tokens, {HEADS} heads of {DIM}, float32, forward and backward")
    ring, mine = measured("ring", partial(ours, ring_attention))
    measured("ring, contiguous", partial(ours, partial(ring_attention, balanced=False)), balanced=False)
    measured("all-gather", partial(ours, gather_attention))
    measured("Ulysses", partial(ours, partial(ulysses_attention, balanced=False)), balanced=False)
    for name, rotate in {"torch, all-gather": "ALL_GATHER", "torch, all-to-all": "ALL_TO_ALL"}.items():
        seconds, theirs = measured(name, partial(torchs_ring, rotate=rotate))
        print(f"    ours takes {ring / seconds:.2f} of it")
        for (_, out, gradients), (_, its, their) in zip(mine, theirs):
            torch.testing.assert_close((out, *gradients), (its, *their), rtol=0, atol=1e-4)


if __name__ == "__main__":
    main()
