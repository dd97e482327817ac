"""A layer cut over several GPUs, on the virtual clock, beside the times that were published; and a step of a GPT on two
gloo processes, beside torch's own parallelize_module.

    python benchmarks/tensor_parallel.py

Efficiencies of products, memory and wires are those of layer_time.py: none is fitted to the times that stand here. The
last column is what to hold against the published one, which overlaps, too: products by tiles and waves, which are not
full (hardware/tiles.py), and slower while a collective runs (Cluster.at).
"""

import runpy
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

import tinydist
from tinydist.hardware import RATES, TILES
from tinydist.hardware.published import LAYERS
from tinydist.model import GPT, GPTConfig, batch
from tinydist.recompute import recompute
from tinydist.tensor_parallel import shard

MODEL = runpy.run_path(str(Path(__file__).with_name("layer_time.py")))
LAYER = MODEL["LAYER"]
NODE = MODEL["NODE"].at(MODEL["MATMUL"], MODEL["MEMORY"], MODEL["WIRE"])
# Products: of these shapes, at the power limit; and while a collective runs.
SUSTAINED = RATES["A100"].sustained / MODEL["NODE"].device.peak_of("bfloat16")
SLOWER = MODEL["NODE"].at(SUSTAINED, MODEL["MEMORY"], MODEL["WIRE"], contention=0.16, tiles=TILES["A100"])
SIZES = GPTConfig(vocab_size=64, context=LAYER.tokens, layers=1, heads=LAYER.heads, dim=LAYER.width, dropout=0.1)

# What is published -> how the layer is run. (With sequence parallelism, tokens are gathered again in backward.)
CASES = {
    "22B": (None, None),
    "22B, sequence parallel": ("regather", None),
    "22B, full recomputation": (None, "full"),
    "22B, selective recomputation": (None, "selective"),
    "22B, selective recomputation, sequence parallel": ("regather", "selective"),
}


# On the clock.


def layer(sequence, recomputed, overlap):
    torch.set_default_dtype(torch.bfloat16)
    model = shard(GPT(SIZES), sequence_parallel=sequence, async_grad_reduce=overlap)
    if recomputed == "full":
        recompute(model.blocks)
    if recomputed == "selective":
        recompute([block.attention for block in model.blocks], "mix")
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)  # to which backward adds: Megatron-LM has a buffer of them
    tokens = LAYER.tokens // dist.get_world_size() if sequence else LAYER.tokens
    x = torch.empty(LAYER.microbatch, tokens, LAYER.width, requires_grad=True)
    gradient = torch.empty_like(x)
    dist.barrier()
    tinydist.mark("forward")
    y = model.blocks[0](x)
    tinydist.mark("backward")
    y.backward(gradient)
    dist.barrier()
    tinydist.mark("over")


def seconds(sequence=None, recomputed=None, overlap=False, ranks=LAYER.tensor_parallel, cluster=NODE):
    """Of forward, and of backward."""
    run = tinydist.launch(
        layer, ranks, sequence, recomputed, overlap, cluster=cluster, fake=True, only=[0], backend="simulated"
    )
    begin, middle, end = (run.trace.time(name) for name in ("forward", "backward", "over"))
    return middle - begin, end - middle


# On processes.

RUNS, ROUNDS, STEPS = 5, 4, 4
CONFIG = GPTConfig(layers=4, heads=4, dim=128)


def untied():
    """torch would cut a weight that two layers share twice, and so into two."""
    torch.manual_seed(0)
    model = GPT(CONFIG)
    model.head.weight = nn.Parameter(model.head.weight.detach().clone())
    return model


def ours(sequence):
    model = shard(untied(), sequence_parallel=sequence)
    return model, model.loss


def torchs(sequence):
    """parallelize_module cuts the rows of queries, keys and values in a row: so they are put in order by rank first."""
    t, model = dist.get_world_size(), untied()
    mesh, between = init_device_mesh("cpu", (t,)), Shard(1) if sequence else Replicate()
    for block in model.blocks:
        for rows in block.attention.qkv.parameters():
            rows.data = rows.data.unflatten(0, (3, t, -1)).transpose(0, 1).flatten(0, 2).clone()
        columns, rows = ColwiseParallel(input_layouts=between), RowwiseParallel(output_layouts=between)
        plan = {"attention.qkv": columns, "attention.out": rows, "mlp.up": columns, "mlp.down": rows}
        norms = {"attention_norm": SequenceParallel(), "mlp_norm": SequenceParallel()} if sequence else {}
        parallelize_module(block, mesh, plan | norms)
    whole = {
        "embedding": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False),
    }
    begins = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1), use_local_output=True)
    cut = {"norm": SequenceParallel(), "dropout": begins} if sequence else {}
    parallelize_module(model, mesh, whole | cut)

    def loss(tokens, targets):
        return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())

    return model, loss


def seconds_of(model, optimizer, loss, text):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(STEPS):
        optimizer.zero_grad()
        with loss_parallel():
            found = loss(*text)
            found.backward()
        optimizer.step()
    dist.barrier()
    found = found.detach()
    return (time.perf_counter() - start) / STEPS, float(found.full_tensor() if isinstance(found, DTensor) else found)


def measure(sequence):
    """Seconds of a step, by round, and losses, of ours and of torch's."""
    torch.set_num_threads(1)
    text, found = batch(0, 8), ([], [])
    made = ours(sequence), torchs(sequence)
    pair = [(model, torch.optim.SGD(model.parameters(), lr=0.1), loss) for model, loss in made]
    for number in range(ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            found[which].append(seconds_of(*pair[which], text))
    return [each[1:] for each in found]  # the first warms up


def print_layer_times():
    heads = "".join(f"{head:>15}" for head in ("published", "one by one", "overlapped", "slower products"))
    print(f"{'one layer on 8 A100s: forward + backward':50}{heads}")
    for name, how in CASES.items():
        rows = [(LAYERS[name].forward, LAYERS[name].backward), seconds(*how), seconds(*how, overlap=True)]
        rows += [seconds(*how, overlap=True, cluster=SLOWER)]
        print(f"  {name:48} " + " ".join(f"{1e3 * a:6.2f} + {1e3 * b:5.2f}" for a, b in rows))
    print(f"  {'22B, tokens on a ring':48} " + f"{'':14} " * 2 + "{:6.2f} + {:5.2f}".format(*(1e3 * s for s in ring())))


def ring():
    return seconds("overlap", overlap=True)


def print_steps():
    print(f"a step of a GPT on 2 gloo processes, medians of {RUNS} runs")
    for sequence in (None, "save"):
        ratios, times = [], ([], [])
        for _ in range(RUNS):
            found = tinydist.launch(measure, 2, sequence, backend="gloo").results[0]
            (ours, torchs), losses = zip(*[zip(*each) for each in found])
            assert max(abs(a - b) for a, b in zip(*losses)) < 1e-4, losses
            medians = statistics.median(ours), statistics.median(torchs)
            ratios.append(medians[0] / medians[1])
            for each, median in zip(times, medians):
                each.append(median)
        print("  tokens cut" if sequence else "  all tokens on each rank")
        for who, each in zip(("ours", "parallelize_module"), times):
            print(f"    {who:30} {1e3 * statistics.median(each):6.1f} ms")
        print(f"    ratio                          {statistics.median(ratios):6.2f}     (at most 1.05)", flush=True)


if __name__ == "__main__":
    print_layer_times()
    print_steps()
