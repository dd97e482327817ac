"""Published step times, each with its parallel plan, to validate predictions.

No constant of efficiency.py was taken from here.
"""

from dataclasses import dataclass, replace

from ..hardware import Cluster, Link
from ..hardware.cluster import A100_NODE, H100_NODE
from ..plan import Plan
from .holds import BLOOM as HOLDS_OF_BLOOM
from .model import Model
from .presets import find_model
from .programs import DEEPSPEED, FSDP, MEGATRON_LM, Program
from .search import evaluate


@dataclass(frozen=True)
class PublishedStep:
    name: str
    model: Model
    plan: Plan
    cluster: Cluster
    program: Program
    seconds: float
    source: str

    def candidate(self):
        """The planner's own."""
        return evaluate(self.model, self.plan, self.cluster, self.program)


# Attention wrote its weights down.
OF_2022 = replace(MEGATRON_LM, flash=False)
# BLOOM's: Megatron-LM's kernels, DeepSpeed's pipeline and optimizer.
MEGATRON_DEEPSPEED = replace(
    DEEPSPEED, name="Megatron-DeepSpeed", fused=True, flash=False, loss="vocab_parallel", holds=HOLDS_OF_BLOOM,
    sums="reduce-scatter", narrow_sums=False,
)  # fmt: skip
# As its slurm script ran it: CUDA_LAUNCH_BLOCKING=1 (bigscience@003b2505, train/tr11-176B-ml/tr11-176B-ml.slurm). In
# fp16 ZeRO 1 reduces each shard to its rank (DeepSpeed@2151c787, zero/stage_1_and_2.py, average_tensor); in bf16
# BF16_Optimizer sums up whole gradients, in fp32 (@56c52238, pipe/engine.py, _bf16_reduce_grads).
SUMS_OF_BLOOM = {"fp16": "reduce", "bf16": "all-reduce"}
OF_BLOOM = {each: replace(MEGATRON_DEEPSPEED, blocking=True, sums=sums) for each, sums in SUMS_OF_BLOOM.items()}

# Jean Zay: 8 A100s per node, which share four cards of Omni-Path, 100 Gbit/s each (bigscience@9e64edec, read). An
# all-reduce of 4 GB over four nodes went through one card, at 40.5 Gbit/s (bigscience@358e3c8f,
# experiments/bandwidth/all_reduce_bench-a100-n4.txt, NCCL 2.10.3, read): both channels of its ring end in card 1.
OMNI_PATH = Link("Omni-Path 100", 14e-6, 40.5e9 / 8, fabric="InfiniBand", rated=100e9 / 8)
JEAN_ZAY = replace(A100_NODE, inter_node=OMNI_PATH, cards_per_node=4, ring_through_one_card=True)

# Megatron-LM of May 2022, in fp16. Model, pp, microbatches, sequences of each, stages per rank; seconds with all layers
# recomputed, and with attention alone and sequence parallelism.
KORTHIKANTI = "Korthikanti et al. 2022, arXiv 2205.05198, tables 3 and 5 (read)"
TABLE_5 = [
    ("Megatron 22B", 1, 1, 4, 1, 1.42, 1.10),
    ("GPT-3 175B", 8, 64, 1, 3, 18.13, 13.75),
    ("Megatron 529.6B", 35, 280, 1, 3, 49.05, 37.83),
    ("Megatron 1008B", 64, 512, 1, 1, 94.42, 71.49),
]

# Megatron-LM of April 2021, in fp16: nothing that is sent hides. Model, tp, pp, dp, sequences of a microbatch and of a
# step, stages per rank; FLOP/s per GPU, in which all layers are recomputed (microbatches:
# examples/academic_paper_scripts/sc21/run_table_1.sh).
SC_21 = "Narayanan et al. 2021, arXiv 2104.04473, table 1 (read)"
TABLE_1 = [
    ("1.7B", 1, 1, 32, 16, 512, 1, 137),
    ("3.6B", 2, 1, 32, 16, 512, 1, 138),
    ("7.5B", 4, 1, 32, 16, 512, 1, 142),
    ("18.4B", 8, 1, 32, 8, 1024, 1, 135),
    ("39.1B", 8, 2, 32, 4, 1536, 1, 138),
    ("76.1B", 8, 4, 32, 2, 1792, 3, 140),
    ("145.6B", 8, 8, 24, 2, 2304, 2, 148),
    ("310.1B", 8, 16, 15, 1, 2160, 2, 155),
    ("529.6B", 8, 35, 9, 1, 2520, 3, 163),
    ("1008B", 8, 64, 6, 1, 3072, 1, 163),
]

# The same paper: ZeRO 3 of DeepSpeed, without tensor parallelism, one microbatch a step. Model, GPUs, sequences of the
# microbatch; FLOP/s per GPU, in which all layers are recomputed; and of tensor 8 x pipeline 12 (35) on as many GPUs
# (for 529.6B on 560).
SC_21_ZERO = "Narayanan et al. 2021, arXiv 2104.04473, table 2 (read)"
TABLE_2 = [
    ("GPT-3 175B", 384, 4, 144, 153),
    ("GPT-3 175B", 768, 2, 88, 149),
    ("GPT-3 175B", 1536, 1, 44, 141),
    ("Megatron 529.6B", 640, 4, 138, 171),
    ("Megatron 529.6B", 1120, 2, 98, 167),
    ("Megatron 529.6B", 2240, 1, 48, 159),
]

# PyTorch's FSDP on 16 nodes of 8 A100s, 400 Gbit/s between them, 2 sequences of 4,096 tokens per GPU, in bf16, in which
# gradients are reduced, too (fms_fsdp/policies/mixed_precision.py). Model, replicas (HSDP: each in a node),
# recomputation, tokens per second and GPU, and those with torch.compile. (13B recomputes every second block or so, and
# 34B is no preset: left out.) They count an MFU of 0.57 and 0.68 for 7B, 0.50 and 0.55 for 70B, by 6 N + 12 L h s, with
# the embedding's parameters in N.
IBM = (
    "IBM and Meta 2024, fms-fsdp@5e522b4 README, also in Maximizing training throughput using PyTorch FSDP, table 1; "
    "with torch.compile fms-fsdp@5a296afe README (all read)"
)
FSDP_STEPS = [("Llama 2 7B", 16, "none", 3700, 4550), ("Llama 2 70B", 1, "full", 370, 410)]

BLOOM = "BigScience 2022, bigscience@9e64edec train/tr11-176B-ml (read): TP 4, PP 12, DP 8, 105 s"
LLAMA = (
    "Touvron et al. 2023, arXiv 2302.13971, section 2.4 (read): 380 tokens a second and GPU; its plan is not published"
)


# Llama 3 405B on H100s of 700 W, bf16, 16 million tokens a step. GPUs, tp, cp, pp, dp, tokens of a sequence; TFLOP/s
# of a GPU, which are 43, 41 and 38 % of the peak. Their program is not published: attention gathers keys and values,
# nothing is computed again, and embedding and head are a stage each, so a layer is one, too, and a rank has eight
# (section 3.3.2). Nor is it said which FLOPs count: here 6 a parameter but the embedding's, and of attention the half
# that a causal mask leaves. Not modelled: the mask between documents, FSDP's gathers, slow nodes.
LLAMA_3 = "Llama Team 2024, arXiv 2407.21783, table 4 (read)"
TABLE_4 = [(8192, 8, 1, 16, 64, 8192, 430), (16384, 8, 1, 16, 128, 8192, 400), (16384, 8, 16, 16, 8, 131072, 380)]


def megatron(pp, chunks, **options):
    schedule = "interleaved" if chunks > 1 else "1f1b"
    return Plan(pp=pp, chunks=chunks, schedule=schedule, precision="fp16", **options)


def table_5():
    for name, pp, M, b, chunks, *both in TABLE_5:
        ways = {
            "all recomputed": dict(recompute="full"),
            "selective": dict(recompute="selective", sequence_parallel="regather"),
        }
        for (way, how), seconds in zip(ways.items(), both):
            plan = megatron(pp, chunks, tp=8, microbatches=M, microbatch=b, **how)
            where = plan, A100_NODE.pod(pp), OF_2022
            yield PublishedStep(f"{name}, {way}", find_model(name), *where, seconds, KORTHIKANTI)


def table_1():
    for name, tp, pp, dp, b, batch, chunks, teraflops in TABLE_1:
        model, how = find_model(f"Megatron {name}"), dict(tp=tp, dp=dp, microbatch=b, microbatches=batch // (dp * b))
        plan = megatron(pp, chunks, recompute="full", overlap_comm=False, **how)
        seconds = model.flops(batch, "full") / (plan.ranks * teraflops * 1e12)
        yield PublishedStep(f"SC'21 {name}", model, plan, A100_NODE.pod(plan.ranks // 8), OF_2022, seconds, SC_21)


def table_2():
    for name, gpus, b, teraflops, _ in TABLE_2:
        model, how = find_model(name), dict(dp=gpus, zero=3, microbatch=b, recompute="full", precision="fp16")
        seconds = model.flops(gpus * b, "full") / (gpus * teraflops * 1e12)
        where = Plan(**how), A100_NODE.pod(gpus // 8), replace(DEEPSPEED, flash=False)
        yield PublishedStep(f"ZeRO 3, {name} on {gpus} GPUs", model, *where, seconds, SC_21_ZERO)


def fsdp_steps():
    cluster = replace(A100_NODE, cards_per_node=2).pod(16)
    for name, replicas, recompute, *both in FSDP_STEPS:
        # fp16 is as fast as bf16, and the planner reduces its gradients in 16 bits.
        how = dict(dp=128, zero=3, replicate=replicas, microbatch=2, recompute=recompute, precision="fp16")
        for compiled, tokens in zip((False, True), both):
            model, program = find_model(name), replace(FSDP, compiled=compiled)
            called = f"{'HSDP' if replicas > 1 else 'FSDP'} {name}" + ", compiled" * compiled
            yield PublishedStep(called, model, Plan(**how), cluster, program, 2 * model.tokens / tokens, IBM)


def llama_3_405b():
    for gpus, tp, cp, pp, dp, tokens, teraflops in TABLE_4:
        model = replace(find_model("Llama 3 405B"), tokens=tokens)
        batch = 2**24 // tokens
        how = dict(cp=cp, context="gather" if cp > 1 else "ring", zero=1, sequence_parallel="regather")
        how |= dict(chunks=8, schedule="interleaved", microbatches=batch // dp, precision="bf16")
        a_token = 6 * (model.parameters - model.vocabulary * model.width) + 3 * model.layers * model.attention_flops / 2
        seconds = batch * tokens * a_token / (gpus * teraflops * 1e12)
        where = Plan(pp=pp, dp=dp, tp=tp, **how), H100_NODE.pod(gpus // 8), MEGATRON_LM
        in_stages = replace(model, layers=128, vocabulary=256)
        yield PublishedStep(f"Llama 3 405B on {gpus} GPUs, cp {cp}", in_stages, *where, seconds, LLAMA_3)


def bloom():
    how = dict(tp=4, dp=8, zero=1, microbatch=2, microbatches=128, recompute="full", precision="bf16")
    plan = Plan(pp=12, overlap_comm=False, **how)
    where = plan, JEAN_ZAY.pod(48), OF_BLOOM[plan.precision]
    return PublishedStep("BLOOM 176B", find_model("BLOOM 176B"), *where, 105.0, BLOOM)
