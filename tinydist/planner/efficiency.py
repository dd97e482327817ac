"""What programs pay besides their kernels: constants, each with its source.

None was fitted to a training step. Kernels and collectives: hardware/products.py, attention_kernels.py, kernels.py,
algorithms.py.
"""

# Seconds that the CPU takes to run an eager program up to its next kernel: gpt-fast's first version decoded 25.5
# tokens/s with Llama 7B on an A100, at 55 kernels in each of 32 layers (PyTorch, Accelerating Generative AI with
# PyTorch II, 2023, secondary; kernels counted as in serving/execution.py). An addition alone takes 8 us there.
LAUNCH = 22e-6

# While a collective runs, a matmul loses this fraction of its speed (Lee et al. 2025; hardware/cluster.py).
CONTENTION = 0.16

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
