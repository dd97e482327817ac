"""How much programs get of a device and of its wires: every constant of the planner, with its source and its reason.

None was chosen by a training run: each was measured on products, copies and collectives alone, and one on a single
layer. How well whole steps are predicted is measured by benchmarks/planner.py.

A product [M, K] x [K, N] is cut in tiles of the output, one for each multiprocessor at a time. All tiles of a wave take
as long as a whole one, be they cut off or the wave not full, and then write what they have while nothing is computed:

    waves          ceil(ceil(M/256) ceil(N/128) / multiprocessors), or the other way round, whichever is faster
    seconds        waves (2 256 128 K / rate of a multiprocessor + bytes of its tile / its part of the bandwidth)

So small, odd and thin products are slower, and there is one number to be known of a device: its best rate, at the shape
for which it was measured. (NVIDIA, Matrix Multiplication Background, 2023, sections 2.3 and 3: tiles, and waves.)
"""

TILE = 256, 128  # the largest of cuBLAS, and "the most efficient" (NVIDIA, as above, section 2.3)

# Fastest product in bfloat16 that anybody measured, FLOP/s, and its M, N, K: ml-engineering@744d01e1, MAMF tables (read).
# Multiprocessors: data sheets (108: NVIDIA, as above; 132: FlashAttention-3, 2024; 148: recalled).
BEST = {
    "A100": (271.2e12, (1024, 10240, 5120), 108),
    "H100": (794.5e12, (2048, 2048, 13312), 132),
    "H200": (794.5e12, (2048, 2048, 13312), 132),
    "B200": (1745e12, (1792, 16128, 3072), 148),
    "GB200": (1822e12, (4096, 9728, 2048), 148),
}

# What a copy gets of the bandwidth of a data sheet: 1732 of 2000 GB/s on an A100 (gpu-benches@1c36d509, gpu-stream/
# a100_80.txt, read). No other device was measured, so all have that part.
MEMORY = 1732 / 2000

# Of NVLink, by all-reduces of 32 KiB to 16 GiB in one node of 8 (allreduce measurements of ml-engineering, and the line
# through them, t = alpha + 2(n-1)/n S/beta): seconds of a ring's step, alpha/14, and beta as a part of the data sheet.
INSIDE = {"A100": (4.90e-6, 225.5 / 300), "H200": (2.82e-6, 458.1 / 450), "B200": (3.48e-6, 718.8 / 900)}
INSIDE |= {"H100": INSIDE["H200"], "GB200": INSIDE["B200"]}  # the same NVLink
# Of network cards: the same for four nodes of 8 B200s, each with eight cards of 50 GB/s. Other networks: the same part.
BETWEEN = 6.64e-6, 381.8 / 400

# What a layer's own products hide in backward, of a sum that is under way meanwhile: nothing. Megatron-LM's layer of 22
# billion parameters takes as long as if it had waited: 11.9, 11.8, 13.2, 13.1 ms are published (Korthikanti et al. 2022,
# table 4), 12.1, 12.0, 13.2, 13.1 predicted if it waits, 10.4, 10.3, 11.5, 11.4 if the product hides it.
HIDDEN = 0.0

# Forward and backward together, all five layers of that table take a little longer than what is counted here, by 1.2 to
# 2.4 %: the geometric mean. It stands for gaps between kernels and for clocks that fall, of which nothing else is known.
IN_A_LAYER = 1.018

# Bytes that the end of a step reads and writes for each parameter of a rank. Megatron-LM@2755bcb8 (June 2022),
# optimizer/optimizer.py and clip_grads.py (read): gradients to fp32 (2 + 4), unscaled (8), their norm (4), clipped (8),
# Adam (16 read, 12 written), weights to 16 bits (4 + 2), gradients zeroed (2). With bfloat16 gradients are fp32 already,
# and not scaled: 4 + 8 + 28 + 6, and 4.
STEP = {"fp16": 62, "bf16": 50}
# And for each microbatch, where a gradient is added to those before: two are read, one written, in 16 bits or in 32.
ACCUMULATED = {"fp16": 6, "bf16": 10}


# Of the peak, what one kernel for attention gets: the middle of the 50 to 73 % that FlashAttention-2 reaches on an A100,
# of 35 % of FlashAttention-2 and 75 % of 3 on an H100 (FlashAttention-2, 2023, secondary; FlashAttention-3, 2024, read).
# It leaves out what a causal mask does.
FLASH = {"A100": 0.615, "H100": 0.55}
