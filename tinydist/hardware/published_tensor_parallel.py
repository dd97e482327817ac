"""Published measurements of tensor parallelism: tokens/s of a GPU by degree, and what the same cluster's links gave.

DEGREES             tokens/s of a GPU, tensor-parallel degree 2 to 32, without and with sequence parallelism
NETWORK             bus bandwidth of collectives on 1, 2 and 4 nodes of that cluster
ASYNC               training steps with and without asynchronous tensor parallelism, in torchtitan
SEQUENCES_OF_BATCH  the last pre-training configurations of Llama 3 405B
"""

from dataclasses import dataclass
from typing import NamedTuple

from ..rules import count, rate, validate


@validate(tensor_parallel=count, sequences=count, tokens_per_second=rate)
@dataclass(frozen=True)
class Degree:
    """A training run on ``tensor_parallel`` GPUs, all of which work on the same ``sequences`` in a step."""

    tensor_parallel: int
    sequences: int
    tokens_per_second: float  # of each GPU


# H100s, 8 in a node, joined by AWS EFA; nanotron, a model of 3.57 billion parameters: 28 layers of width 3072, 32 heads
# (as many of keys), an MLP of 8192 with a gate, a vocabulary of 131,072; sequences of 4,096 tokens.
#   shape, and sequences with sequence parallelism: huggingface/nanotron@2411b022 scripts/scaling_benchmarks.py (read)
#   tokens/s: Ultra-Scale Playbook, fragments/tp_scaling.html and tp_sp_scaling.html (read, in a copy: vinjn/
#   nanotron-ultrascale-playbook@e3bcfc5c). Without sequence parallelism the page does not say which batch was timed:
#   these sequences are the largest batch that fits, of the same picture.
PLAYBOOK = "Ultra-Scale Playbook, tp_scaling.html, tp_sp_scaling.html; nanotron scripts/scaling_benchmarks.py (read)"
DEGREES = {
    "tensor parallel": [
        Degree(2, 3, 13923.18),
        Degree(4, 8, 12420.76),
        Degree(8, 12, 10903.32),
        Degree(16, 16, 6245.6),
        Degree(32, 20, 2146.44),
    ],
    "with sequence parallelism": [
        Degree(2, 3, 14167.25),
        Degree(4, 9, 13460.16),
        Degree(8, 18, 10888.53),
        Degree(16, 40, 6159.3),
        Degree(32, 90, 3609.73),
    ],
}


class Bandwidth(NamedTuple):
    """Bus bandwidth in bytes/s: of all measurements, 5 of 100 are below ``low`` and 5 above ``high``."""

    low: float
    median: float
    high: float


# (collective, nodes) of the same cluster: pp_comm_bandwidth.html of the same page (read), which does not say of which
# sizes.
NETWORK = {
    ("all_reduce", 1): Bandwidth(422.3e9, 436.0e9, 461.5e9),
    ("all_reduce", 2): Bandwidth(302.3e9, 361.7e9, 436.1e9),
    ("all_reduce", 4): Bandwidth(44.5e9, 160.1e9, 219.1e9),
    ("all_gather", 1): Bandwidth(239.6e9, 249.8e9, 264.9e9),
    ("all_gather", 2): Bandwidth(148.0e9, 184.6e9, 226.3e9),
    ("all_gather", 4): Bandwidth(40.8e9, 119.0e9, 229.4e9),
    ("reduce_scatter", 1): Bandwidth(240.8e9, 249.7e9, 264.6e9),
    ("reduce_scatter", 2): Bandwidth(146.1e9, 181.6e9, 226.4e9),
    ("reduce_scatter", 4): Bandwidth(41.2e9, 115.8e9, 215.5e9),
}


class AsyncTensorParallel(NamedTuple):
    """Tokens/s of a GPU, with 8 tensor-parallel ranks: their collectives in turns with matmuls, and overlapped."""

    width: int
    sequences: int  # of a rank
    in_turns: float
    overlapped: float


# H100s with 500 W and HBM2e, 8 in a node; FSDP over the others; torch.compile; bfloat16. pytorch/torchtitan@b5bcd76c
# benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md (read), which doesn't say how long the sequences are.
ASYNC = {
    "Llama 3 70B": AsyncTensorParallel(8192, 16, 597.3, 652.4),  # 256 GPUs, full recomputation
    "Llama 3 8B": AsyncTensorParallel(4096, 12, 4378, 4809.4),  # 64 GPUs, recomputation by operators
}


class Batch(NamedTuple):
    """How a batch met the GPUs: ``data_parallel`` replicas, each with ``per_replica`` sequences in a step."""

    gpus: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    per_replica: int
    tokens: int  # of a sequence
    mfu: float

    @property
    def sequences(self):
        return self.data_parallel * self.per_replica


# The Llama 3 Herd of Models, arXiv 2407.21783, table 4 (its first two rows, read in transcriptions).
SEQUENCES_OF_BATCH = [
    Batch(8192, 8, 16, 64, 32, 8192, 0.43),
    Batch(16384, 8, 16, 128, 16, 8192, 0.41),
]
