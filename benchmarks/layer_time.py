"""One layer of a transformer on the virtual clock, beside the time that was published: what closes the gap?

    python benchmarks/layer_time.py

A layer of a model with 22 billion parameters, cut over the 8 A100s of a node by tensor parallelism, forward. First its
products, softmax, GELU and two all-reduces alone, which are rings at the speeds of the data sheets; then, one after
another, what else there is to compute, and the speeds that were measured.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F

import tinydist
from tinydist.hardware import find_cluster
from tinydist.hardware.published import BUS_BANDWIDTHS, LAYERS, MEMORY_BANDWIDTHS

NODE = find_cluster("A100 node").with_algorithm("ring")
LAYER = LAYERS["22B"]
MATMUL = NODE.device.best_matmul["bfloat16"] / NODE.device.peak_of("bfloat16")
MEMORY = MEMORY_BANDWIDTHS["A100 80GB"] / NODE.device.memory_bandwidth
WIRE = BUS_BANDWIDTHS["A100"] / NODE.intra_node.bandwidth


def forward(layer, memory_bound):
    """One rank's part: tokens first, as in Megatron-LM. [T, B, D]; heads H of width D/H."""
    B, T, D, H, tp = layer.microbatch, layer.tokens, layer.width, layer.heads, layer.tensor_parallel
    x = torch.empty(T, B, D, dtype=torch.bfloat16)
    x = between(attention(before(x, memory_bound), H, tp, memory_bound), x, memory_bound)
    between(mlp(before(x, memory_bound), tp), x, memory_bound)


def attention(x, H, tp, memory_bound):
    T, B, D = x.shape
    q, k, v = (part.reshape(T, B * H // tp, D // H).transpose(0, 1) for part in product(x, 3 * D // tp).chunk(3, -1))
    scores = torch.bmm(q, k.transpose(1, 2)).softmax(-1)  # [B H/tp, T, T]; scale and mask are in the same kernels
    if memory_bound:
        scores, _ = torch.native_dropout(scores, 0.1, True)
    heads = torch.bmm(scores, v).transpose(0, 1).reshape(T, B, D // tp)
    return all_reduced(product(heads, D))


def mlp(x, tp):
    D = x.shape[-1]
    return all_reduced(product(F.gelu(product(x, 4 * D // tp)), D))


def product(x, width):
    return x @ torch.empty(x.shape[-1], width, dtype=x.dtype)


def all_reduced(x):
    dist.all_reduce(x)
    return x


def before(x, memory_bound):
    return F.layer_norm(x, x.shape[-1:]) if memory_bound else x


def between(out, x, memory_bound):
    """Bias, dropout and the residual are one kernel in Megatron-LM: it reads two tensors and writes one."""
    return out + x if memory_bound else out


def run(memory_bound):
    return tinydist.launch(
        forward, LAYER.tensor_parallel, LAYER, memory_bound, cluster=NODE, fake=True, only=[0], backend="simulated"
    )


def path():
    """(what is counted, seconds), one factor more in each line."""
    bare, whole = run(memory_bound=False), run(memory_bound=True)
    return [
        ("products, softmax, GELU, two all-reduces", bare.seconds),
        ("+ dropout, LayerNorm, residual: memory-bound", whole.seconds),
        (f"+ memory at {MEMORY:.0%} of its bandwidth, as measured", whole.on(NODE.at(memory=MEMORY)).seconds),
        (f"+ products at {MATMUL:.0%} of the peak, the best measured", whole.on(NODE.at(MATMUL, MEMORY)).seconds),
        (f"+ all-reduces at {WIRE:.0%} of the wire, as measured", whole.on(NODE.at(MATMUL, MEMORY, WIRE)).seconds),
    ]


if __name__ == "__main__":
    for what, seconds in path():
        print(f"{what:<55} {seconds * 1e3:.2f} ms  {seconds / LAYER.forward:.0%}")
    print(f"{'published':<55} {LAYER.forward * 1e3:.2f} ms")
