"""Published measurements of layers' inputs that recomputation keeps on the host: bytes that it frees, and seconds.

FREED       on one H100, by ``save_on_cpu``, between forward and backward
STEPS       seconds of a step: all kept, layers recomputed, and their inputs on the host besides
LONG_STEP   the same at 131,072 tokens a GPU

Sources. FREED: huggingface/transformers pull request 48444, September 2026 (an excerpt, read); "MB" are 2^20 bytes, 8k
is 8,192. STEPS and LONG_STEP: huggingface/accelerate pull request 4175, 2026 (an excerpt, read): FSDP2 with
``activation_checkpointing_offload``. STEPS are of a model of 24 layers, whose name the excerpt lacks; LONG_STEP is of
Qwen3-0.6B, 1,048,576 tokens on 8 GPUs.
"""

from typing import NamedTuple


class Freed(NamedTuple):
    layers: int
    width: int
    tokens: int
    nbytes: float  # freed


FREED = (
    Freed(8, 1024, 8_192, 128.0 * 2**20),
    Freed(16, 1024, 16_384, 512.0 * 2**20),
    Freed(28, 2048, 32_768, 3584.0 * 2**20),
)


class Steps(NamedTuple):
    """Seconds. Bytes: ``inputs`` of layers, which are copied; ``freed`` after forward; ``peak``, with or without."""

    inputs: float
    kept: float
    recomputed: float
    offloaded: float
    freed: float
    peak: float


STEPS = Steps(1.61e9, 1.08, 1.38, 1.86, 1.54e9, 24.73e9)


class LongStep(NamedTuple):
    layers: int
    width: int
    tokens: int  # of a GPU
    inputs: float  # bytes
    peak: float  # bytes: with inputs on the GPU
    peak_offloaded: float
    longer: float  # than with inputs on the GPU: a share of the step


LONG_STEP = LongStep(28, 1024, 131_072, 7.5e9, 27.9e9, 20.8e9, 0.006)
