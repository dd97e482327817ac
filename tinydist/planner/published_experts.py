"""Published steps of models with experts, for predictions to stand beside. No constant was taken from here.

All were run with balanced load and without dropped tokens. TFLOP/s count attention to all tokens, as Megatron-LM does.
What a source leaves open, or the planner cannot say, stands with each row.
"""

from dataclasses import replace

from ..hardware.cluster import H100_NODE, NVL72
from ..plan import Plan
from .model import Experts
from .presets import find_model, like_llama
from .programs import MEGATRON_LM
from .published import PublishedStep

# 468 TFLOP/s of MCore 0.9; the plan is the page's "reference best parallel mapping" of 0.8.
MIXTRAL = "NVIDIA/Megatron-LM@022bcb5a megatron/core/transformer/moe/README.md (read)"
# "Around 455 TFLOP/s". There tensor ranks share whole experts with the others (--expert-tensor-parallel-size 1), here
# each expert is cut over two: as many bytes of a rank, narrower matmuls, and more that is sent.
MODEL_ZOO = (
    "yanring/Megatron-MoE-ModelZoo@0993e667 best_practice/Mixtral/run_mixtral_8x22B.sh, @30631ea5 runtime_configs/"
    "benchmarking/runtime.conf (read)"
)
# torch's FSDP with Transformer Engine's kernels and DeepEP, taken to be Megatron-LM's; all layers are recomputed.
AUTOMODEL = (
    "NVIDIA-NeMo/Automodel@01926a5c docs/performance-summary.md, @092af93e examples/benchmark/configs/"
    "qwen3_moe_30b_te_deepep.yaml (read)"
)
# Embedding and head count as a layer each. Whether something is recomputed is not stated, nor which kernels ran.
BRIDGE = "NVIDIA-NeMo/Megatron-Bridge@0a25f911 docs/performance-summary-archive.md, container 25.11 (read)"
DEEPSEEK = "DeepSeek-AI 2024, arXiv 2412.19437, table 1, sections 3.1, 3.2 and 4.2 (secondary; hours: read)"


def qwen3(name, layers, width, heads, inner, experts, vocabulary=151936):
    sizes = dict(kv_heads=4, head_dim=128, inner=inner, experts=experts)
    return like_llama(name, layers, width, heads, vocabulary, 4096, **sizes)


def looped(chunks, **sizes):
    return Plan(chunks=chunks, schedule="interleaved", zero=1, precision="bf16", overlap_param_gather=True, **sizes)


def of_rate(name, model, plan, cluster, teraflops, source):
    seconds = model.flops(plan.batch) / (plan.ranks * teraflops * 1e12)
    return PublishedStep(name, model, plan, cluster, MEGATRON_LM, seconds, source)


def steps_with_experts():
    mixtral = replace(find_model("Mixtral 8x7B"), tokens=4096)
    plan = looped(8, pp=4, dp=16, ep=8, microbatches=16)
    yield of_rate("Mixtral 8x7B on 64 H100s", mixtral, plan, H100_NODE.pod(8), 468, MIXTRAL)

    sizes = dict(kv_heads=8, inner=16384, experts=Experts(8, 2, 16384))
    mixtral = like_llama("Mixtral 8x22B", 56, 6144, 48, 32000, 4096, **sizes)
    plan = replace(looped(2, pp=8, dp=8, tp=2, ep=4, microbatches=32), chunks=1, schedule="1f1b")
    plan = replace(plan, sequence_parallel="regather")
    yield of_rate("Mixtral 8x22B on 128 H100s", mixtral, plan, H100_NODE.pod(16), 455, MODEL_ZOO)

    qwen = qwen3("Qwen3 30B", 48, 2048, 32, 6144, Experts(128, 8, 768))
    plan = Plan(dp=8, ep=8, zero=3, microbatch=4, microbatches=16, recompute="full", precision="bf16")
    where = plan, H100_NODE, replace(MEGATRON_LM, loss="fused")
    yield PublishedStep("Qwen3 30B on 8 H100s", qwen, *where, 21.773, AUTOMODEL)

    qwen = qwen3("Qwen3 235B", 96, 4096, 64, 12288, Experts(128, 8, 1536), 256)
    plan = looped(3, pp=8, dp=32, ep=32, microbatches=256)
    seconds = plan.batch * 4096 / plan.ranks / 4916
    yield PublishedStep("Qwen3 235B on 256 GB200s", qwen, plan, NVL72.pod(4), MEGATRON_LM, seconds, BRIDGE)


def deepseek_v3():
    """Its run as one step: 2,664,000 hours of an H800 for 14.8e12 tokens, on 2,048, 15,360 sequences a step.

    An H800 is an H100 with less than half of its NVLink. The layer of its module for further tokens counts as one,
    without that module's head. 1F1B for DualPipe, which hides the all-to-all, and half of the bubble; flat all-to-alls,
    though a token is sent to four nodes at most, once; matmuls in fp8, and nothing else of their recipe; nothing is
    recomputed, where theirs recomputes norms and what follows the latents. So it would not fit."""
    switch = H100_NODE.intra_node
    slower = replace(switch, name="NVSwitch (H800)", bandwidth=switch.bandwidth * 200 / 450)
    model = replace(find_model("DeepSeek-V3"), layers=62)
    plan = Plan(pp=16, dp=128, ep=64, zero=1, microbatches=120, precision="bf16", overlap_param_gather=True)
    steps = 14.8e12 / (plan.batch * model.tokens)
    where = plan, replace(H100_NODE, intra_node=slower).pod(256), replace(MEGATRON_LM, fp8=True)
    return PublishedStep("DeepSeek-V3 on 2048 H800s", model, *where, 2_664_000 * 3600 / plan.ranks / steps, DEEPSEEK)
