"""Published measurements: training runs, a layer, all-reduces, memory bandwidth, with sources.

Reference values for predictions, by name: ``RUNS["LLaMA 65B"].gpu_hours``.
"""

from dataclasses import dataclass, field

from ..rules import validate
from .cluster import Cluster
from .devices import A100_80GB, H100, H800, V100, Device
from .lookup import look_up
from .products import RATES
from .published_collectives import ALL_REDUCES, SIZES
from .tiles import TILES

BILLION, TRILLION = 1e9, 1e12


@validate(name=str, device=Device, source=str)
@dataclass(frozen=True)
class TrainingRun:
    """A published training run; fields that were not published are None."""

    name: str
    device: Device
    parameters: float
    tokens: float | None = None
    devices: int | None = None
    gpu_hours: float | None = None
    active: float | None = None  # parameters that each token meets, of a mixture of experts
    rate: float | None = None  # FLOP/s of a device, as reported: ask what was counted
    mfu: tuple[float, float] | None = None  # from, to, as reported
    batch: int | None = None  # sequences in a step
    step_seconds: float | None = None
    source: str = field(kw_only=True)

    @property
    def flops(self) -> float:
        """6 for each parameter and token: 2 forward, 4 backward (Kaplan et al. 2020, section 2.1)."""
        return 6 * (self.active or self.parameters) * self.tokens

    @property
    def hours_at_peak(self) -> float:
        """GPU hours, if each device computed at its peak in 16 bits."""
        return self.flops / self.device.peak_of("float16") / 3600

    @property
    def efficiency(self) -> float:
        """Model FLOPs utilization (MFU) over all GPU hours."""
        return self.hours_at_peak / self.gpu_hours


LLAMA = "LLaMA, arXiv 2302.13971, tables 2 and 15; devices: section 2.4 (read)"
LLAMA_2 = "Llama 2, arXiv 2307.09288, table 2 (read)"
LLAMA_3 = "Meta, llama-models MODEL_CARD.md (read)"
LLAMA_3_1 = "The Llama 3 Herd of Models, arXiv 2407.21783, and model card (read)"
# Hours: BLOOM's own report and the study of its carbon (arXiv 2211.02001) say 1,082,990; LLaMA's table 15, 1,082,880.
BLOOM = (
    "BLOOM, arXiv 2211.05100, section 3.4.1 (secondary): hours, of everything; bigscience@9e64edec train/tr11-176B-ml "
    "(read): the rate, which counts 8 FLOPs, with recomputation"
)
OPT = "OPT, arXiv 2205.01068, and metaseq chronicles (read)"
GPT_3 = "GPT-3, arXiv 2005.14165, table D.1 (read); on V100s, of a number that was not published"
DEEPSEEK = "DeepSeek-V3, arXiv 2412.19437 (read); pre-training alone; matmuls in float8"
RUNS = {
    run.name: run
    for run in (
        TrainingRun("GPT-3 175B", V100, 174.6 * BILLION, 0.3 * TRILLION, source=GPT_3),
        TrainingRun("OPT 175B", A100_80GB, 175 * BILLION, None, 992, 809_472, rate=147e12, source=OPT),
        TrainingRun(
            "BLOOM 176B", A100_80GB, 176.247 * BILLION, 0.366 * TRILLION, 384, 1_082_990,
            rate=150e12, batch=2048, step_seconds=105.0, source=BLOOM,
        ),
        TrainingRun("LLaMA 7B", A100_80GB, 6.74 * BILLION, 1.0 * TRILLION, None, 82_432, source=LLAMA),
        TrainingRun("LLaMA 13B", A100_80GB, 13.02 * BILLION, 1.0 * TRILLION, None, 135_168, source=LLAMA),
        TrainingRun("LLaMA 33B", A100_80GB, 32.53 * BILLION, 1.4 * TRILLION, None, 530_432, source=LLAMA),
        TrainingRun("LLaMA 65B", A100_80GB, 65.29 * BILLION, 1.4 * TRILLION, 2048, 1_022_362, source=LLAMA),
        TrainingRun("Llama 2 7B", A100_80GB, 6.74 * BILLION, 2.0 * TRILLION, None, 184_320, source=LLAMA_2),
        TrainingRun("Llama 2 70B", A100_80GB, 68.98 * BILLION, 2.0 * TRILLION, None, 1_720_320, source=LLAMA_2),
        TrainingRun("Llama 3 70B", H100, 70.55 * BILLION, 15.0 * TRILLION, None, 6.4e6, source=LLAMA_3),
        TrainingRun(
            "Llama 3.1 405B", H100, 405.85 * BILLION, 15.6 * TRILLION, 16_384, 30.84e6,
            mfu=(0.38, 0.43), source=LLAMA_3_1,
        ),
        TrainingRun(
            "DeepSeek-V3", H800, 671 * BILLION, 14.8 * TRILLION, 2048, 2.664e6, active=37 * BILLION, source=DEEPSEEK,
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class LayerTime:
    """One layer of a transformer on one of the ranks that share it by tensor parallelism."""

    microbatch: int  # sequences
    tokens: int  # of a sequence
    width: int
    heads: int
    tensor_parallel: int
    forward: float  # seconds
    backward: float
    source: str


# On 8 A100s of one node, in 16 bits: the model of 22 billion parameters, without recomputation and with all of it, and
# with the operators between the matmuls sharded too (sequence parallelism).
KORTHIKANTI = "Korthikanti et al., Reducing Activation Recomputation, arXiv 2205.05198, tables 3 and 4 (read)"
MODEL_22B = dict(microbatch=4, tokens=2048, width=6144, heads=64, tensor_parallel=8, source=KORTHIKANTI)
LAYERS = {
    "22B": LayerTime(**MODEL_22B, forward=7.7e-3, backward=11.9e-3),
    "22B, sequence parallel": LayerTime(**MODEL_22B, forward=7.2e-3, backward=11.8e-3),
    "22B, selective recomputation": LayerTime(**MODEL_22B, forward=7.7e-3, backward=13.2e-3),
    "22B, selective recomputation, sequence parallel": LayerTime(**MODEL_22B, forward=7.2e-3, backward=13.1e-3),
    "22B, full recomputation": LayerTime(**MODEL_22B, forward=7.7e-3, backward=19.5e-3),
}


@dataclass(frozen=True)
class StepMemory:
    """What a rank held at its peak in training steps of a model with SwiGLU and grouped heads."""

    layers: int
    width: int
    intermediate: int  # width of the MLP
    heads: int
    kv_heads: int
    vocabulary: int
    tensor_parallel: int
    data_parallel: int
    tokens: int  # of one sequence, which is the micro-batch
    peak: float  # bytes


# On 8 B200s, Megatron-LM with fused attention, no recomputation, sequence and tensor parallel, and a distributed
# optimizer: all rows with neither pipeline, context parallelism nor experts. Their 405B has 16 key-value heads
# (simu_tools/megatron_scripts/scripts/run_pretrain_llama3.sh, read); Megatron pads the vocabulary.
SIMUMAX = "MooreThreads/SimuMax@4dcaae51 docs/b200/b200_release_v1.2_summary.json (read)"
LLAMA_3_70B = dict(layers=12, width=8192, intermediate=28_672, heads=64, kv_heads=8, vocabulary=128_512, tokens=4096)
LLAMA_3_405B = dict(layers=4, width=16_384, intermediate=53_248, heads=128, kv_heads=16, tokens=4096)
STEP_MEMORIES = {
    "12 layers of Llama 3 70B, tp 2": StepMemory(**LLAMA_3_70B, tensor_parallel=2, data_parallel=4, peak=60.68 * 2**30),
    "12 layers of Llama 3 70B, tp 4": StepMemory(**LLAMA_3_70B, tensor_parallel=4, data_parallel=2, peak=39.07 * 2**30),
    "4 layers of Llama 3 405B, tp 2": StepMemory(
        **LLAMA_3_405B, vocabulary=128_512, tensor_parallel=2, data_parallel=4, peak=81.59 * 2**30
    ),
    "4 layers of Llama 3 405B, tp 8": StepMemory(
        **LLAMA_3_405B, vocabulary=129_024, tensor_parallel=8, data_parallel=1, peak=38.57 * 2**30
    ),
}

# The largest of them, 16 GiB in a node of 8, and what the H200s reach in a ring.
BUS_BANDWIDTHS = {
    "A100": ALL_REDUCES["8 x A100"][SIZES[-1]],
    "H200": 367.61e9,
    "H200, switches add (SHARP)": ALL_REDUCES["8 x H200"][SIZES[-1]],
}

# Of A[i] = c B[i], which reads as much as it writes, in bytes/s: te42kyfo/gpu-benches@1c36d509 gpu-stream/a100_80.txt
# (read).
MEMORY_BANDWIDTHS = {"A100 80GB": 1732e9}


RINGS = {"A100": BUS_BANDWIDTHS["A100"], "H100": BUS_BANDWIDTHS["H200"]}  # the same links


@validate(cluster=Cluster)
def training_rates(cluster) -> dict:
    """What ``cluster.at`` takes for A100s or H100s in training, each rate as it was measured: matmuls at the power
    limit, by shape, and slower beside a collective; memory; all-reduces in a ring."""
    device = cluster.device
    family = device.name.split()[0]
    ring = look_up("training rates", RINGS, family)
    rates = RATES.get(device.name, RATES[family])
    return {
        "matmul": rates.sustained / device.peak_of("bfloat16"),
        "memory": MEMORY_BANDWIDTHS.get(device.name, rates.bandwidth) / device.memory_bandwidth,
        "wire": ring / cluster.intra_node.bandwidth,
        "contention": 0.16,  # Cluster.at has the source
        "tiles": TILES[family],
    }


# Tokens/s of one sequence, by model and GPUs (A100 80GB at 330 W of 400; four of them are joined by NVLink in a hybrid
# cube mesh). "direct": a CUDA graph, and small all-reduces by direct access; neither embedding nor head is sharded.
# pytorch-labs/gpt-fast@0f925b5d README.md, "Benchmarks", "Tensor Parallelism" (read). "NCCL": the same table before
# gpt-fast had a direct all-reduce (README of November 2023, read in a fork). "eager": the first program of
# pytorch.org/blog/accelerating-generative-ai-2 (read). "Llama 3.1": as "direct", @c9f683ed, the models that came later.
GPT_FAST = {
    "direct": {
        ("Llama 2 7B", 1): 104.9,
        ("Llama 2 7B", 2): 168.84,
        ("Llama 2 7B", 4): 254.02,
        ("Llama 2 7B", 8): 328.43,
        ("Llama 2 70B", 2): 21.32,
        ("Llama 2 70B", 4): 38.01,
        ("Llama 2 70B", 8): 62.50,
    },
    "NCCL": {
        ("Llama 2 7B", 2): 136.27,
        ("Llama 2 7B", 4): 168.78,
        ("Llama 2 7B", 8): 179.27,
        ("Llama 2 70B", 2): 20.53,
        ("Llama 2 70B", 4): 34.15,
        ("Llama 2 70B", 8): 47.25,
    },
    "eager": {("Llama 2 7B", 1): 25.5},
    "Llama 3.1": {  # of the sizes of Llama 3
        ("Llama 3 8B", 1): 93.83,
        ("Llama 3 8B", 2): 149.10,
        ("Llama 3 8B", 4): 217.21,
        ("Llama 3 8B", 8): 276.01,
        ("Llama 3 70B", 2): 16.03,
        ("Llama 3 70B", 4): 37.45,
        ("Llama 3 70B", 8): 58.78,
    },
}

# Of one sequence on one A100, weights in 4 bits: each model alone, and the large one while the small one drafts four
# tokens in each round, greedily, for one prompt ("def quicksort(arr):"). The same README @c9f683ed, "Speculative
# Sampling", and scripts/speculate_70B_int4.sh (read).
DRAFTED = {"Llama 2 70B": 25.25, "Llama 2 7B": 196.80, "Llama 2 70B, drafted": 48.4}


@dataclass(frozen=True)
class ServedRate:
    """Of a server: medians in seconds, or what it served of requests that were all there at the start. ITL: between
    two arrivals of tokens at the client."""

    engine: str
    requests: int
    per_second: float  # at which requests come; infinite: all at the start
    ttft: float | None = None
    tpot: float | None = None
    itl: float | None = None
    served: float | None = None  # requests a second
    output: float | None = None  # tokens a second


# bfloat16, ShareGPT: SGLang 0.3.0 without prefix cache (on one GPU with torch.compile), and vLLM 0.6.0 with 10
# scheduler steps at a time. sgl-project/sglang@120affb9 benchmark/benchmark_vllm_060/README.md (read). An answer has
# 4,281.51 / 22.03 = 194 tokens; 1,000 prompts have 215,196, as Llama 3.1 counts them (vllm-project/vllm issue 7567,
# read).
SGLANG, VLLM = "SGLang 0.3.0", "vLLM 0.6.0"
SERVED = {
    "Llama 3.1 8B, 1 x A100": [
        ServedRate(SGLANG, 1200, 4, ttft=31.98e-3, tpot=13.17e-3, itl=11.93e-3),
        ServedRate(VLLM, 1200, 4, ttft=100.48e-3, tpot=14.14e-3, itl=129.32e-3),
        ServedRate(SGLANG, 2400, 8, ttft=35.68e-3, tpot=17.85e-3, itl=14.41e-3),
        ServedRate(VLLM, 2400, 8, ttft=120.39e-3, tpot=17.09e-3, itl=158.63e-3),
        ServedRate(SGLANG, 5000, float("inf"), served=22.03, output=4281.51),
        ServedRate(VLLM, 5000, float("inf"), served=21.27, output=4132.37),
    ],
    "Llama 3.1 70B, 4 x H100": [
        ServedRate(SGLANG, 1200, 4, ttft=53.94e-3, tpot=25.03e-3, itl=21.67e-3),
        ServedRate(VLLM, 1200, 4, ttft=179.15e-3, tpot=23.58e-3, itl=231.23e-3),
        ServedRate(SGLANG, 2400, 8, ttft=58.11e-3, tpot=33.07e-3, itl=24.45e-3),
        ServedRate(VLLM, 2400, 8, ttft=207.12e-3, tpot=29.15e-3, itl=275.32e-3),
        ServedRate(SGLANG, 5000, float("inf"), served=19.84, output=3856.01),
        ServedRate(VLLM, 5000, float("inf"), served=19.04, output=3700.64),
    ],
}
