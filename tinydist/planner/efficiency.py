"""Measured efficiency of devices and links: every constant of the planner, with its source and its reason.

None was fitted to a training step: matmuls, copies and collectives were measured separately, two constants on passes.
But the model was revised once after a first evaluation on whole steps: a factor on all matmuls became ``contention``,
``beside`` and ``gap``, as the passes suggest as well. So the reported error (benchmarks/planner.py) is slightly
optimistic.

Products are in tiles and waves (hardware/tiles.py), so that small, odd and thin ones are slower.
"""

from dataclasses import dataclass

from ..hardware import TILES, Tiles


@dataclass(frozen=True)
class Efficiency:
    matmul: float  # FLOP/s of the best matmul
    tiles: Tiles  # its shape
    flash: float  # part of the peak that one kernel for attention gets
    step: float  # seconds of a step of a ring in a node
    wire: float  # part of the links' bandwidth there
    memory: float = 1732 / 2000
    far_step: float = 6.64e-6  # over nodes
    far_wire: float = 381.8 / 400
    contention: float = 0.16
    beside: float = 1.023
    gap: float = 29e-6


# matmul: the fastest in bfloat16 that anybody measured (ml-engineering@744d01e1, MAMF tables, read).
# flash: the middle of 50 to 73 % on an A100 (FlashAttention-2, 2023, secondary), and on an H100 of 35 % for the second
# and 75 % for the third (FlashAttention-3, 2024, read), of the half that a causal mask leaves. B200: as on an H100.
# step, wire: the line t = alpha + 2(n-1)/n S/beta through all-reduces of 32 KiB to 16 GiB in a node of 8 (measured:
# ml-engineering@744d01e1; hardware/published.py has them). A step is alpha/14; the wire is beta over the data sheet's.
A100 = Efficiency(271.2e12, TILES["A100"], 0.615, 4.90e-6, 225.5 / 300)
H100 = Efficiency(794.5e12, TILES["H100"], 0.55, 2.82e-6, 458.1 / 450)
B200 = Efficiency(1745e12, TILES["B200"], 0.55, 3.48e-6, 718.8 / 900)
GB200 = Efficiency(1822e12, TILES["GB200"], 0.55, 3.48e-6, 718.8 / 900)
DEVICES = {"A100": A100, "H100": H100, "H200": H100, "B200": B200, "GB200": GB200}

# memory: what a copy gets on an A100 (gpu-benches@1c36d509, gpu-stream/a100_80.txt, read). No other was measured.
# far_step, far_wire: the same line through all-reduces of four nodes of 8 B200s, each with eight cards of 50 GB/s. Of
# other networks there is no measurement whose hardware is known.

# contention: while a collective runs, a matmul loses this fraction of its speed (Lee et al. 2025; hardware/cluster.py).
# beside: how much longer matmuls take in a program than alone. Zero Bubble's backward passes of weights are nothing
# but matmuls: in stages of four models on A100s they take 0 to 6 % longer than alone. The geometric mean (Qi et al.
# 2024, table 6).
# gap: seconds between two operators, where small kernels run that are not counted, and nothing. It is the one that fits
# the five layers of Korthikanti et al. 2022, table 4, best, forward and backward: of ten times none is off by 3 %.

# Bytes that the end of a step reads and writes for each parameter of a rank. Megatron-LM@2755bcb8 (June 2022),
# optimizer/optimizer.py and clip_grads.py (read): gradients to fp32 (2 + 4), unscaled (8), their norm (4), clipped (8),
# Adam (16 read, 12 written), weights to 16 bits (4 + 2), gradients to zero (2). With bfloat16, gradients are in fp32
# already, and not scaled: 4 + 8 + 28 + 6, and 4.
STEP = {"fp16": 62, "bf16": 50}
# The same of torch's operators one by one, as they count on the simulated clock: AdamW, and weights in 16 bits, for
# those of the own shard. And for all that a rank has gradients of, when they are reduced: buckets are made and divided.
TORCH_OWN, TORCH_WHOLE = {"fp32": 84, "bf16": 92, "fp16": 92}, 4 + 8
# And in each microbatch, where a gradient is added to those before: two are read, one written, in 16 bits or in 32.
ACCUMULATED, TORCH_ACCUMULATED = {"fp16": 6, "bf16": 10}, {"fp32": 12, "fp16": 10, "bf16": 10}
# ZeRO 2 and 3 reduce in each, and then keep a copy of the own shard, to which the one before has been added.
TORCH_KEPT, TORCH_ADDED = 4 + 12, 12
