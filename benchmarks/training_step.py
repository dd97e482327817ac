"""A step of a GPT on gloo processes: DDP, ZeRO's stages, ZeRO with tensor parallelism beside torch's own; then the
training loop beside bare steps. All in turns, in five runs.

python benchmarks/training_step.py             or a part of it: python benchmarks/training_step.py loop
"""

import copy
import io
import statistics
import sys
import time
import warnings
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import tinydist
from tinydist.data_parallel import DDP
from tinydist.model import GPT, GPTConfig, batch, load_text
from tinydist.model.gpt import Block
from tinydist.training import Batches, Plan, Step, flops_per_token, parallelize, train
from tinydist.training.loop import rows_of
from tinydist.training.lr_schedules import constant
from tinydist.zero import ZeRO1, ZeRO2, ZeRO3

RUNS, ROUNDS, STEPS, LOOPED = 5, 4, 4, 20
CONFIG = GPTConfig(layers=4, heads=4, dim=128)
PLANS = Plan(dp=2), Plan(dp=2, tp=2)


class WithLoss(torch.nn.Module):
    """What is wrapped: its output is the loss."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.model = GPT(CONFIG)

    def forward(self, tokens, targets):
        return self.model.loss(tokens, targets)


def with_adam(module):
    return stepping(module, torch.optim.AdamW(module.parameters(), lr=1e-3))


def stepping(module, optimizer):
    def step(tokens, targets):
        optimizer.zero_grad()
        module(tokens, targets).backward()
        optimizer.step()

    return step


def ddp():
    return with_adam(DDP(WithLoss()))


def distributed_data_parallel():
    return with_adam(DistributedDataParallel(WithLoss()))


def ddp_that_looks_for_the_unused():
    return with_adam(DDP(WithLoss(), find_unused_parameters=True))


def its_find_unused_parameters():
    return with_adam(DistributedDataParallel(WithLoss(), find_unused_parameters=True))


def stage_1(**options):
    module = WithLoss()
    return stepping(module, ZeRO1(module, torch.optim.AdamW, lr=1e-3, **options))


def stage_1_that_gathers_in_forward():
    return stage_1(overlap_param_gather=True)


def zero_redundancy_optimizer():
    with warnings.catch_warnings(action="ignore"):  # it uses torch.jit
        from torch.distributed.optim import ZeroRedundancyOptimizer

        module = DistributedDataParallel(WithLoss(), gradient_as_bucket_view=True)
        return stepping(module, ZeroRedundancyOptimizer(module.parameters(), torch.optim.AdamW, lr=1e-3))


def stage_2():
    module = WithLoss()
    return stepping(module, ZeRO2(module, torch.optim.AdamW, lr=1e-3))


def stage_3():
    module = WithLoss()
    units = lambda each: isinstance(each, Block)  # noqa: E731
    return stepping(module, ZeRO3(module, torch.optim.AdamW, units=units, lr=1e-3))


def torchs_fully_shard(reshard=True):
    module, mesh = WithLoss(), init_device_mesh("cpu", (2,))
    for block in module.model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(module, mesh=mesh, reshard_after_forward=reshard)
    return with_adam(module)


def fully_shard_without_resharding():
    """What FSDP calls SHARD_GRAD_OP: parameters stay from forward to backward."""
    return torchs_fully_shard(reshard=False)


def dp2_x_tp2():
    torch.manual_seed(0)
    return parallelize(GPT(CONFIG), Plan(dp=2, tp=2, zero=3), lr=1e-3).step


def fully_shard_and_parallelize_module():
    """The same cuts. (Of qkv each rank has other columns, as many: so the heads are others.)"""
    module, mesh = WithLoss(), init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    columns, rows = ColwiseParallel(), RowwiseParallel()
    cuts = {"attention.qkv": columns, "attention.out": rows, "mlp.up": columns, "mlp.down": rows}
    for block in module.model.blocks:
        parallelize_module(block, mesh["tp"], cuts)
    table = RowwiseParallel(input_layouts=Replicate())
    logits = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(module.model, mesh["tp"], {"embedding": table, "head": logits})
    module.model.head.weight = module.model.embedding.weight
    for block in module.model.blocks:
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(module, mesh=mesh["dp"])
    step = with_adam(module)

    def with_parts_of_logits(tokens, targets):
        with loss_parallel():
            step(tokens, targets)

    return with_parts_of_logits


PAIRS = {  # ours, torch's or ours as it was, processes for the data and for a layer, at most so much of its time
    "DDP": (ddp, distributed_data_parallel, (2, 1), 1.05),
    "DDP, find_unused_parameters": (ddp_that_looks_for_the_unused, its_find_unused_parameters, (2, 1), None),
    "stage 1": (stage_1, zero_redundancy_optimizer, (2, 1), 0.75),
    "stage 1, overlap_param_gather": (stage_1_that_gathers_in_forward, stage_1, (2, 1), 1.05),
    "stage 2": (stage_2, fully_shard_without_resharding, (2, 1), None),
    "stage 3": (stage_3, torchs_fully_shard, (2, 1), 0.75),
    "dp=2, tp=2, stage 3": (dp2_x_tp2, fully_shard_and_parallelize_module, (2, 2), 1.1),
}


def seconds_of(step, share):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(STEPS):
        step(*share)
    dist.barrier()
    return (time.perf_counter() - start) / STEPS


def measure(ours, theirs, tp):
    """Seconds of a step, by round, of both."""
    torch.set_num_threads(1)
    share = [tensor.chunk(2)[dist.get_rank() // tp] for tensor in batch(0, 16)]
    steps, times = [ours(), theirs()], [[], []]
    for number in range(ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            times[which].append(seconds_of(steps[which], share))
    return [each[1:] for each in times]  # the first warms up


class Terminal(io.StringIO):
    """Where a bar is shown."""

    def isatty(self):
        return True


def loop_and_bare_steps(plan):
    """Seconds of a step, by round: in the loop, bare, and of the loop around no step."""
    torch.set_num_threads(1)
    model = GPT(CONFIG)
    engine, flops = parallelize(model, plan, lr=1e-3), flops_per_token(model)
    batches = Batches(load_text().numpy(), 16, CONFIG.context)
    rows = rows_of(engine, batches, 0)
    nothing = copy.copy(engine)
    nothing.step = lambda *rows, lr: Step(1.0, 1.0, True)

    def bare():
        for _ in range(LOOPED):
            engine.step(*rows, lr=1e-3)

    def looped(engine):
        train(engine, batches, LOOPED, constant(1e-3), flops=flops, stream=Terminal())

    ways = [partial(looped, engine), bare, partial(looped, nothing)]
    rounds = [[seconds_of_a_step(way) for way in ways] for _ in range(ROUNDS)]
    return list(zip(*rounds[1:]))  # the first warms up


def seconds_of_a_step(steps):
    dist.barrier()
    start = time.perf_counter()
    steps()
    dist.barrier()
    return (time.perf_counter() - start) / LOOPED


def stages():
    parameters = sum(p.numel() for p in GPT(CONFIG).parameters())
    print(f"a step of a GPT with {parameters:,} parameters on 2 or 4 gloo processes, medians of {RUNS} runs")
    found = {stage: ([], []) for stage in PAIRS}
    for _ in range(RUNS):
        for stage, (ours, theirs, (dp, tp), _) in PAIRS.items():
            run = tinydist.launch(measure, dp * tp, ours, theirs, tp, backend="gloo")
            for medians, times in zip(found[stage], run.results[0]):
                medians.append(statistics.median(times))
    for stage, (_, theirs, _, target) in PAIRS.items():
        ours, torchs = found[stage]
        ratios = sorted(a / b for a, b in zip(ours, torchs))
        print(f"  {stage:32} {1e3 * statistics.median(ours):6.1f} ms")
        print(f"  {theirs.__name__.replace('_', ' '):32} {1e3 * statistics.median(torchs):6.1f} ms")
        spread = f"{statistics.median(ratios):6.2f}     {ratios[0]:.2f} to {ratios[-1]:.2f} in {RUNS} runs"
        print(f"  ratio                            {spread}" + (f" (at most {target})" if target else ""))


def loop():
    for plan in PLANS:
        print(f"a step, dp={plan.dp}, tp={plan.tp}, on {plan.ranks} gloo processes, medians of {RUNS} runs")
        runs = [tinydist.launch(loop_and_bare_steps, plan.ranks, plan, backend="gloo").results[0] for _ in range(RUNS)]
        looped, bare, alone = ([statistics.median(run[which]) for run in runs] for which in range(3))
        ratio = statistics.median(a / b for a, b in zip(looped, bare))
        print(f"  in the loop                      {1e3 * statistics.median(looped):6.1f} ms")
        print(f"  bare                             {1e3 * statistics.median(bare):6.1f} ms")
        print(f"  ratio                            {ratio:6.3f}     (at most 1.03)")
        print(f"  the loop around no step          {1e3 * statistics.median(alone):6.2f} ms")


if __name__ == "__main__":
    for part in map(globals().get, sys.argv[1:] or ("stages", "loop")):
        part()
