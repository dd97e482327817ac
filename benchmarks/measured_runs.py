"""Training runs that others measured, as the planner's model, plan, cluster and program: seconds of a step, and memory.

    for run in RUNS["SimuMax, B200"]():        a Run, or in words why a row is none

Tables: benchmarks/measured, each row with its source. What a table does not say was read in the programs' scripts.
"""

import csv
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tinydist.hardware import Cluster, find_cluster, find_device
from tinydist.planner import FSDP, MEGATRON_LM, TORCHTITAN, Experts, Model, Plan, Program, evaluate, find_model
from tinydist.planner.published import JEAN_ZAY, MEGATRON_DEEPSPEED, OF_BLOOM, table_1, table_5
from tinydist.planner.published_experts import steps_with_experts

FOLDER = Path(__file__).parent / "measured"
GIB = 2**30


@dataclass(frozen=True)
class Run:
    name: str
    model: Model
    plan: Plan
    cluster: Cluster
    program: Program
    seconds: float | None = None  # of a step
    peak: float | None = None  # bytes
    said: str = "held"  # what that is: of tensors, what the allocator has reserved, or all in use ("total")
    ran: bool = True  # or was there too little memory?

    def candidate(self, machine=None):
        return evaluate(self.model, self.plan, self.cluster, self.program, machine)


def read(name):
    with (FOLDER / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def numbers(row, *names):
    return [int(row[name]) for name in names]


def on(node, ranks):
    return node.pod(-(-ranks // node.devices_per_node))


def positive(text):
    return float(text) if text else None


# Megatron-LM on 8 B200s.


def simumax(context=False):
    """As SimuMax's scripts call it: the loss fused, nothing overlaps, nothing is computed again (SimuMax@4dcaae51
    simu_tools/megatron_scripts/scripts/run_pretrain_llama3.sh, read). Their 405B has 16 KV heads, their tokenizer a
    token more than the model, and Megatron pads it to a multiple of 128 on each rank."""
    models = {"llama3-70b": find_model("Llama 3 70B"), "llama3-405b": replace(find_model("Llama 3 405B"), kv_heads=16)}
    for row in read("simumax_b200_steps"):
        tp, pp, dp, M, layers, tokens = numbers(row, "tp", "pp", "dp", "microbatches", "layers", "tokens")
        if row["model"] not in models or (row["cp"] != "1") != context:
            yield "context parallelism" if row["model"] in models else "experts"
            continue
        vocabulary = -(-128257 // (128 * tp)) * 128 * tp
        model = replace(models[row["model"]], layers=layers, tokens=tokens, vocabulary=vocabulary)
        how = dict(
            cp=int(row["cp"]),
            zero=int(dp > 1 or context),
            microbatches=M,
            sequence_parallel="regather" if tp > 1 else None,
        )
        plan = Plan(pp=pp, dp=dp, tp=tp, precision="bf16", overlap_comm=False, **how)
        program = replace(MEGATRON_LM, loss="fused")
        yield Run(
            row["id"], model, plan, find_cluster("B200 node"), program, float(row["seconds"]), float(row["GiB"]) * GIB
        )


def simumax_experts():
    """Four layers of DeepSeek's, of which the first has no experts; as many rows for each expert, by padding
    (SimuMax@1b8ca90b simu_tools/megatron_scripts/scripts/run_pretrain_deepseekv2.sh, read)."""
    v3 = find_model("DeepSeek-V3")
    v2 = replace(v3, name="DeepSeek-V2", width=5120, vocabulary=102400, inner=12288, experts=Experts(160, 6, 1536, 2))
    models = {"deepseekv3": v3, "deepseekv2": v2}
    for row in (row for row in read("simumax_b200_steps") if row["model"] in models):
        tp, pp, dp, ep, M, layers = numbers(row, "tp", "pp", "dp", "ep", "microbatches", "layers")
        model = models[row["model"]]
        experts, vocabulary = replace(model.experts, dense_layers=1), -(-(model.vocabulary + 1) // 128) * 128
        model = replace(model, layers=layers, vocabulary=vocabulary, experts=experts)
        plan = Plan(pp=pp, dp=dp, tp=tp, ep=ep, zero=1, microbatches=M, precision="bf16", overlap_comm=False)
        where = plan, find_cluster("B200 node"), replace(MEGATRON_LM, loss="fused")
        yield Run(row["id"], model, *where, float(row["seconds"]), float(row["GiB"]) * GIB)


# Megatron-DeepSpeed on A100s.

BF16_FROM = 900


def bloom():
    """All layers recomputed. The table does not say which format a trial ran in. BF16_Optimizer has no ZeRO stage, the
    table has stage 1: fp16. The run itself was in bf16. From line 900 on, trials hold 15 to 20 GiB more than the same
    plans before: what the gradients of BF16_Optimizer take. They are scored in bf16, so their peaks are no evidence.

    Where a model of the table's width has not the table's parameters, its width is 12288, which has.

    With 320 GPUs and more, each launch had to wait for the kernel before it: else runs hung (lines 438 to 462 there,
    read; with 160 they were as fast, with 80 they took 7 % longer). ZeRO 1 in fp16 reduces each shard to its rank
    (DeepSpeed@2151c787, zero/stage_1_and_2.py, average_tensor); BF16_Optimizer sums up whole gradients, in fp32
    (@56c52238, pipe/engine.py, _bf16_reduce_grads, read)."""
    for row in read("bloom_trials"):
        layers, width, heads, tokens = numbers(row, "layers", "width", "heads", "tokens")
        tp, dp, pp, zero, b, batch = numbers(row, "tp", "dp", "pp", "zero", "microbatch", "batch")
        width = width if 12 * layers * width**2 < 1.1e9 * float(row["size"].rstrip("B")) else 12288
        model = Model(f"BLOOM {row['size']}", layers, width, heads, 250880, tokens, positions="alibi", dropout=0.1)
        precision = "fp16" if int(row["id"].removeprefix("bloom-line")) < BF16_FROM else "bf16"
        how = dict(microbatch=b, microbatches=batch // (dp * b), recompute="full", precision=precision)
        plan = Plan(pp=pp, dp=dp, tp=tp, zero=zero * (dp > 1), overlap_comm=False, **how)
        seconds, peak = positive(row["seconds"]), row["GiB"] and float(row["GiB"]) * GIB
        where = on(JEAN_ZAY, plan.ranks), OF_BLOOM[precision]
        yield Run(row["id"], model, plan, *where, seconds, peak or None, "total", row["oom"] != "1")


# Four cards of 200 Gbit/s for 8 GPUs (vTrain@f8dda847 src/config.py, read).
VTRAIN = replace(find_cluster("A100 node"), cards_per_node=4)


def vtrain(name, recompute):
    """Without ZeRO. The configurations of both sets say that layers are recomputed.

    The rows of one node are called measured, but were composed by vTrain's simulator: time is linear in the number of
    microbatches to the nanosecond, and rows that differ in dp alone differ by entries of its table of all-reduces
    (trace/a100, read), all 111 pairs. It adds up kernels of one profiled layer with the pauses between them, and the
    last stage recomputes nothing, so that in one stage nothing is (src/predictor.py, read)."""
    for row in read(name):
        layers, width, heads, tokens = numbers(row, "layers", "width", "heads", "tokens")
        model = Model("GPT", layers, width, heads, 51200, tokens, dropout=0.1)
        tp, dp, pp, b, batch = numbers(row, "tp", "dp", "pp", "microbatch", "batch")
        how = dict(microbatch=b, microbatches=batch // (dp * b), recompute=recompute, precision="fp16")
        plan = Plan(pp=pp, dp=dp, tp=tp, overlap_comm=False, **how)
        yield Run(row["id"], model, plan, on(VTRAIN, plan.ranks), MEGATRON_DEEPSPEED, float(row["seconds"]))


# FSDP.

NODES = {
    "h100_80gb": find_cluster("H100 RoCE node"),
    "a100_80gb": find_cluster("A100 node"),
    "a100_40gb": replace(find_cluster("A100 node"), device=find_device("A100 40GB")),
}


def foundry(gpu):
    """Composer on torch's FSDP, MPT models."""
    for row in read("llm_foundry_h100_a100"):
        if not row["gpu"].startswith(gpu):
            continue
        model = Model(f"MPT {row['model']}", *numbers(row, "layers", "width", "heads"), 50368, int(row["tokens"]))
        gpus, b, M = numbers(row, "gpus", "microbatch", "microbatches")
        how = dict(recompute="full" if row["checkpointing"] == "True" else "none", precision="bf16")
        plan = Plan(dp=gpus, zero=3 if row["sharding"] == "FULL_SHARD" else 2, microbatch=b, microbatches=M, **how)
        program = replace(FSDP, attention=attention_of(row), fp8=row["precision"] == "amp_fp8")
        yield Run(row["id"], model, plan, on(NODES[row["gpu"]], gpus), program, float(row["seconds"]))


def attention_of(row):
    """FlashAttention's of 2022 in Triton, until the runs on 128 GPUs and more (llm-foundry@5e85bd62d, sweep.py and
    sweep.sh; @b2a43a147, submit_benchmarks.py and models/layers/flash_attn_triton.py, read)."""
    later = row["gpu"].startswith("h100") and int(row["gpus"]) >= 128 and row["model"] in ("1b", "3b", "7b", "70b")
    return "fa2" if later else "triton 2022"


TITAN = replace(find_cluster("H100 node"), device=find_device("H100 500W"))
H200 = replace(find_cluster("H100 node"), device=find_device("H200"))


def torchtitan(context=False):
    """FSDP 2 and tensor parallelism; asynchronous tensor parallelism is timed as the plain one. What the allocator has
    reserved at most. On H200s, in 2025, the loss is compiled, too (torchtitan@00a388d9 components/loss.py, read)."""
    sizes = {"32": "Llama 3 8B", "80": "Llama 3 70B", "126": "Llama 3 405B"}
    for row in read("torchtitan_llama3"):
        if not row["mbs"] or (row["cp"] != "1") != context:
            yield "context parallelism" if row["cp"] != "1" and not context else "a microbatch that is not published"
            continue
        tp, pp, dp, b, batch, tokens = numbers(row, "tp", "pp", "dp", "mbs", "gbs", "seq")
        how = dict(recompute="full" if row["recompute"] == "full" else "per_op", precision="bf16")
        how |= dict(sequence_parallel="save" if tp > 1 else None, microbatches=batch // (dp * b))
        how |= dict(cp=int(row["cp"]), context="gather") if context else {}
        plan = Plan(pp=pp, dp=dp, tp=tp, zero=3, microbatch=b, **how)
        later = row["gpu"] == "H200"
        program = replace(TORCHTITAN, attention="fa2", compiled="eager" not in row["id"], fp8=row["precision"] == "fp8")
        program = replace(program, holds=replace(program.holds, logit=4)) if later else program
        peak, where = positive(row["peak_mem_GiB"]), on(H200 if later else TITAN, plan.ranks)
        model = replace(find_model(sizes[row["layers"]]), tokens=tokens)
        yield Run(row["id"], model, plan, where, program, float(row["step_s"]), peak and peak * GIB, "reserved")


def paper(table):
    for row in table():
        yield Run(row.name, row.model, row.plan, row.cluster, row.program, row.seconds)


RUNS: dict[str, Callable] = {
    "llm-foundry, H100": partial(foundry, "h100"),
    "llm-foundry, A100": partial(foundry, "a100"),
    "SimuMax, B200": simumax,
    "torchtitan, H100 and H200": torchtitan,
    "BLOOM's trials, A100": bloom,
    "vTrain, one node of A100, simulated": partial(vtrain, "vtrain_one_node", "none"),
    "vTrain, several nodes": partial(vtrain, "vtrain_several_nodes", "full"),
    "Korthikanti, table 5, A100": partial(paper, table_5),
    "SC'21, table 1, A100": partial(paper, table_1),
}
# Those with experts, and with context parallelism.
EXPERTS = {"SimuMax, B200": simumax_experts, "Megatron-LM, H100 and GB200": partial(paper, steps_with_experts)}
CONTEXT = {"SimuMax, B200": partial(simumax, True), "torchtitan, H100 and H200": partial(torchtitan, True)}
