"""Published steps of training in 8 and in 4 bits, beside the same with more bits, with sources."""

from dataclasses import dataclass

from ..rules import rate, validate


@validate(gpus=str, recipe=str, gather=str, before=rate, after=rate, source=str)
@dataclass(frozen=True)
class SpeedUp:
    """A training step of Llama 3 8B, 8,192 tokens a sequence, compiled and sharded: tokens/s of a GPU before, after.

    ``gather``: the dtype in which weights are gathered, "" where the source does not say. (A scale per row on a B200:
    torchao's config.py, commit 36027d8, allows fp8 with a scale per tensor only.)
    """

    gpus: str
    recipe: str
    gather: str
    before: float
    after: float
    source: str

    @property
    def factor(self) -> float:
        return self.after / self.before


TITAN = "torchtitan@31a17bfd benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3 (read); 2 sequences a GPU"
AO_H100 = "torchao@9519bebb torchao/float8/README.md, training benchmarks (read); 1 sequence a GPU"
AO_MI300X = "torchao@9519bebb torchao/float8/README.md, training benchmarks, AMD MI300x (read); 1 sequence a GPU"
AO_B200 = "torchao@09f13255 torchao/prototype/mx_formats/README.md (read); power limited; 1 sequence a GPU"
SPEED_UPS = [  # from 16 to 8 bits
    SpeedUp("8 x H100 500W", "a scale per tensor", "", 6667, 8532, TITAN),
    SpeedUp("128 x H100 500W", "a scale per tensor", "", 6514, 8380, TITAN),
    SpeedUp("8 x H100", "a scale per tensor", "fp8", 6150, 7689.5, AO_H100),
    SpeedUp("8 x H100", "a scale per row", "bf16", 6150, 6768, AO_H100),
    SpeedUp("8 x MI300X", "a scale per tensor", "fp8", 5376.5, 6166, AO_MI300X),
    SpeedUp("8 x MI300X", "a scale per row", "bf16", 5376.5, 5891, AO_MI300X),
    SpeedUp("8 x MI300X", "a scale per row, wgrad in bf16", "bf16", 5376.5, 6100, AO_MI300X),
    SpeedUp("8 x B200", "a scale per tensor", "fp8", 8307.5, 10417, AO_B200),
    SpeedUp("8 x B200", "a scale per row", "bf16", 8307.5, 8640.5, AO_B200),
    SpeedUp("8 x B200", "MXFP8, scales rounded down", "", 8307.5, 9969, AO_B200),
    SpeedUp("8 x B200", "MXFP8, scales rounded up", "", 8307.5, 9642, AO_B200),
]


@validate(gpus=str, recipe=str, least=rate, most=rate, source=str)
@dataclass(frozen=True)
class SpeedUpRange:
    """Steps of Llama 3 70B in 8 bits, so many times as fast as in 16: the least and the most that were published."""

    gpus: str
    recipe: str
    least: float
    most: float
    source: str


FSDP2 = "dev-discuss.pytorch.org 2359, enabling float8 all-gather in FSDP2 (read): H100s on Grand Teton, as TITAN's"
CRUSOE_H200 = "PyTorch blog 2025, Float8 rowwise on Crusoe's 2K H200s: 1,600 and 1,920 GPUs (read)"
CRUSOE_B200 = "PyTorch blog 2025, MXFP8 on Crusoe's B200s: context parallel 2 (read)"
SPEED_UPS_70B = [
    SpeedUpRange("128 x H100 500W", "a scale per tensor", 1.50, 1.50, FSDP2),
    SpeedUpRange("1,920 x H200", "a scale per row", 1.34, 1.43, CRUSOE_H200),
    SpeedUpRange("1,856 x B200", "MXFP8", 1.22, 1.28, CRUSOE_B200),
]


@validate(gpus=str, model=str, against=str, before=rate, after=rate, source=str)
@dataclass(frozen=True)
class FourBits:
    """Training in NVFP4: tokens/s of a GPU with the fastest recipe ``against`` it in the same table, and in NVFP4."""

    gpus: str
    model: str
    against: str
    before: float
    after: float
    source: str

    @property
    def factor(self) -> float:
        return self.after / self.before

    @property
    def promised(self) -> float:
        """How much faster products are by the data sheets."""
        sheet = DENSE_PEAKS[self.gpus.split(" x ")[1]]
        return sheet["NVFP4"] / sheet["bf16" if self.against == "bf16" else "fp8"]


# TFLOP/s without sparsity: ml-engineering@744d01e1 compute/accelerator/README.md (read). 15 PFLOP/s of the "300" also:
# NVIDIA, Inside Blackwell Ultra (read); others give a B300 12.6 to 15.
DENSE_PEAKS = {
    "B200": {"bf16": 2250, "fp8": 4500, "NVFP4": 9000},
    "GB200": {"bf16": 2500, "fp8": 5000, "NVFP4": 10_000},
    "B300": {"bf16": 2250, "fp8": 4500, "NVFP4": 12_600},
    "GB300": {"bf16": 2500, "fp8": 5000, "NVFP4": 15_000},
}

# All by NVIDIA. Parallelism differs between the two runs of some rows, as each was tuned for itself.
BRIDGE = "NVIDIA-NeMo/Megatron-Bridge docs/performance-summary.md, container 26.04.01 (read)"
STATION = "NVIDIA/dgx-spark-playbooks@227c1515 nvidia/station-nvfp4-pretraining/README.md (read)"
STEP = 64 * 4096  # tokens, in 9.05 and 5.39 s
FOUR_BITS = [
    FourBits("1 x GB300", "Llama 3.1 8B", "bf16", STEP / 9.05, STEP / 5.39, STATION),
    FourBits("64 x GB300", "Llama 3 70B", "fp8", 5376, 7296, BRIDGE),
    FourBits("64 x GB200", "Llama 3 70B", "fp8", 4352, 4864, BRIDGE),
    FourBits("256 x GB300", "Llama 3.1 405B", "fp8", 1024, 1440, BRIDGE),
    FourBits("256 x GB200", "Llama 3.1 405B", "fp8", 832, 1184, BRIDGE),
    FourBits("64 x GB300", "Nemotron 3 Super", "MXFP8", 9344, 9600, BRIDGE),
    FourBits("64 x GB200", "Nemotron 3 Super", "MXFP8", 6656, 6784, BRIDGE),
    FourBits("64 x B300", "Nemotron 3 Super", "MXFP8", 7424, 7552, BRIDGE),
    FourBits("64 x B200", "Nemotron 3 Super", "MXFP8", 6400, 5632, BRIDGE),
]
