"""Published measurements of pipelines: times and memory of schedules, of numbers of microbatches, of numbers of ranks.

GPIPE         throughput on 2, 4 and 8 accelerators
BLOOM_TRIALS  seconds of a step for several sizes of microbatches
ZERO_BUBBLE   four models, with four schedules each: what was measured, and what the authors calculated
LARGER_MICROBATCHES  the same for 1F1B with microbatches twice as large
TORCHTITAN    1F1B beside interleaved 1F1B, on 512 GPUs
V_FAMILY      schedules on a V, as their authors' scheduler makes them
"""

from typing import NamedTuple

# GPipe, arXiv 1811.06965, table 2 (read): (model, microbatches) -> throughput on 2, 4 and 8 TPUs, relative to 2 TPUs
# and one microbatch.
GPIPE = {
    ("Transformer", 1): (1, 1.07, 1.3),
    ("Transformer", 4): (1.7, 3.2, 4.8),
    ("Transformer", 32): (1.8, 3.4, 6.3),
    ("AmoebaNet", 1): (1, 1.13, 1.38),
    ("AmoebaNet", 4): (1.07, 1.26, 1.72),
    ("AmoebaNet", 32): (1.21, 1.84, 3.48),
}


class Trials(NamedTuple):
    """Steps of the same batch, in microbatches of several sizes."""

    ranks: int  # stages
    sequences: int  # of a pipeline's batch
    seconds: dict[int, float]  # sequences in a microbatch -> of a step


# A100s, before BLOOM was trained: bigscience-workshop/bigscience@9e64edec train/tr11-176B-ml/chronicles-prequel.md
# (read): all tables in which three sizes or more were tried, with the same model and batch. Stages are 8 GPUs each. The
# model's parameters, and stages:
BLOOM_TRIALS = {
    ("194B", 6): Trials(6, 2048 // 8, {1: 183.64, 2: 172.36, 4: 173.92, 8: 192.42}),
    ("200B", 10): Trials(10, 2048 // 4, {1: 221.21, 2: 207.92, 4: 208.18, 8: 229.69}),
    ("195B", 11): Trials(11, 2048 // 4, {1: 197.15, 2: 186.65, 4: 185.79, 8: 206.62}),
    ("183B", 12): Trials(12, 2048 // 4, {1: 172.40, 2: 161.96, 4: 163.32}),
    ("187B", 10): Trials(10, 2048 // 4, {1: 160.29, 2: 151.07, 4: 147.43, 8: 152.51}),
    ("181B", 12): Trials(12, 2048 // 4, {1: 143.31, 2: 134.02, 4: 123.69, 8: 129.26}),
    ("181B", 6): Trials(6, 2048 // 8, {1: 139.82, 2: 131.02, 4: 121.48}),
}


class Setting(NamedTuple):
    """A model on ``ranks`` GPUs, one stage each, and ``microbatches`` in a step. Lists have a number for each of these.

    ``samples``, ``gigabytes``: measured, of each schedule: sequences per second of a GPU, and the most memory.
    ``bubbles``: what the authors calculated from ``milliseconds``, and did not measure (section 5.3).
    ``checked_before``: as ``samples``, of ZB-2p and the fewest microbatches, with the norm checked before the step.
    """

    layers: int
    heads: int
    width: int
    ranks: int
    microbatch: int  # sequences of 1024 tokens
    microbatches: list[int]
    milliseconds: list[tuple[float, float, float, float]]  # F, I, W of a stage, and a message: profiled
    samples: dict[str, list[float]]
    gigabytes: dict[str, float]
    bubbles: dict[str, list[float]]
    checked_before: float


# A100s of 80 GB, 8 in a node, RoCE between nodes, on top of Megatron-LM: Qi et al., Zero Bubble (Almost) Pipeline
# Parallelism, ICLR 2024, tables 3 to 7 (read; the times of table 6 are those of passes in ZB-2p). The first and last
# stage have a layer less than the others. Interleaved: each layer is a stage.
ZERO_BUBBLE = {
    "1.5B": Setting(
        *(22, 24, 2304, 8, 6, [24, 32, 64]),
        [(18.522, 18.086, 9.337, 0.601), (18.513, 18.086, 9.331, 0.626), (18.546, 18.097, 9.321, 0.762)],
        {
            "1F1B": [11.8, 12.5, 13.6],
            "interleaved": [13.1, 13.4, 13.9],
            "ZB-1p": [12.9, 13.4, 14.2],
            "ZB-2p": [14.5, 14.8, 14.9],
        },
        {"1F1B": 30, "interleaved": 40, "ZB-1p": 32, "ZB-2p": 59},
        {
            "1F1B": [0.2431, 0.1985, 0.1240],
            "interleaved": [0.1055, 0.0818, 0.0443],
            "ZB-1p": [0.1585, 0.1242, 0.0674],
            "ZB-2p": [0.0433, 0.0039, 0.0026],
        },
        checked_before=13.11,
    ),
    "6.2B": Setting(
        *(30, 32, 4096, 8, 3, [24, 32, 64]),
        [(29.718, 29.444, 19.927, 0.527), (29.802, 29.428, 19.530, 0.577), (29.935, 29.621, 19.388, 0.535)],
        {
            "1F1B": [3.50, 3.70, 4.03],
            "interleaved": [4.01, 4.08, 4.19],
            "ZB-1p": [3.88, 4.00, 4.20],
            "ZB-2p": [4.32, 4.35, 4.39],
        },
        {"1F1B": 39, "interleaved": 48, "ZB-1p": 42, "ZB-2p": 70},
        {
            "1F1B": [0.2347, 0.1898, 0.1091],
            "interleaved": [0.0808, 0.0628, 0.0320],
            "ZB-1p": [0.1323, 0.1045, 0.0554],
            "ZB-2p": [0.0029, 0.0022, 0.0010],
        },
        checked_before=4.00,
    ),
    "14.6B": Setting(
        *(46, 40, 5120, 16, 1, [48, 64, 128]),
        [(11.347, 11.248, 8.132, 0.377), (11.307, 11.254, 8.101, 0.379), (11.325, 11.308, 8.109, 0.378)],
        {
            "1F1B": [1.40, 1.49, 1.64],
            "interleaved": [1.54, 1.59, 1.66],
            "ZB-1p": [1.61, 1.67, 1.76],
            "ZB-2p": [1.81, 1.83, 1.85],
        },
        {"1F1B": 32, "interleaved": 39, "ZB-1p": 33, "ZB-2p": 51},
        {
            "1F1B": [0.2552, 0.2082, 0.1251],
            "interleaved": [0.1104, 0.0852, 0.0445],
            "ZB-1p": [0.1397, 0.1088, 0.0576],
            "ZB-2p": [0.0066, 0.0054, 0.0028],
        },
        checked_before=1.68,
    ),
    "28.3B": Setting(
        *(62, 48, 6144, 32, 1, [96, 128, 256]),
        [(10.419, 10.207, 7.715, 0.408), (10.408, 10.204, 7.703, 0.408), (10.402, 10.248, 7.698, 0.460)],
        {
            "1F1B": [0.76, 0.80, 0.88],
            "interleaved": [0.82, 0.85, 0.90],
            "ZB-1p": [0.87, 0.90, 0.96],
            "ZB-2p": [0.99, 1.00, 1.00],
        },
        {"1F1B": 43, "interleaved": 58, "ZB-1p": 44, "ZB-2p": 74},
        {
            "1F1B": [0.2646, 0.2168, 0.1352],
            "interleaved": [0.1493, 0.1164, 0.0624],
            "ZB-1p": [0.1421, 0.1106, 0.0594],
            "ZB-2p": [0.0038, 0.0029, 0.0018],
        },
        checked_before=0.91,
    ),
}

# The same paper, table 8 (read): 1F1B of 6.2B, 24 microbatches of 6 sequences instead of 3 (sequences/s of a GPU, GB).
LARGER_MICROBATCHES = (3.56, 66)

# Llama 3.1 405B on 512 H100s, FSDP 8 x tensor parallel 8 x pipeline 8; a batch of 32 sequences for each pipeline:
# pytorch/torchtitan@31a17bfd benchmarks/llama3_h100_202412_torchtitan.md, table 5 (read), which says neither of how
# many sequences a microbatch is, nor how many stages a rank has: schedule -> tokens/s of a GPU, GiB of the fullest one.
TORCHTITAN = {"1F1B": (100, 82.5), "interleaved 1F1B": (128, 72.7)}


class OnV(NamedTuple):
    """A schedule on a V, of ranks with two stages each."""

    makespan: float  # with F = I = W = 0.5 s of a stage, and instant messages
    activations: int  # held until W by the fullest rank, of one stage each


# The authors' scheduler, run by us: sail-sg/zero-bubble-pipeline-parallelism@39f2c186 zbv.py, zbv_greedy.py. Their
# paper has V-Half in (P + 2) // 2 and V-Min in (P + 4) // 3 microbatches (arXiv 2405.15362). Schedule, ranks,
# microbatches:
V_FAMILY = {
    ("ZB-V", 4, 8): OnV(25.5, 8),
    ("V-Half", 4, 8): OnV(26.5, 6),
    ("V-Min", 4, 8): OnV(29.5, 4),
    ("ZB-V", 8, 16): OnV(51.5, 16),
    ("V-Half", 8, 16): OnV(56.5, 10),
    ("V-Min", 8, 16): OnV(61.5, 8),
}
