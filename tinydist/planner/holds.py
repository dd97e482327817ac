"""What a program holds in a training step beyond weights in 16 bits and Adam's 12 bytes a parameter.

    bytes of a parameter    gradient, bf16 fp16    in flight              logit
    Megatron-LM                       4    2       2, which stay          6       and fp32 gradients at an fp16 step
    DeepSpeed                         2    2       2                      6       and one or two buckets of 1 GB
    DeepSpeed, BLOOM's                6    2       2                      6       and two
    FSDP                              4    4       2 + 4                  4       weights in fp32, gathered in 16 bits
    torchtitan (FSDP2)                4    4       2 + 4                  14

In flight is a gradient that backward has just computed, before it is added to the one that is kept or is reduced: that
of a block, or of the head. Gradients and states are sharded as ZeRO has it; what is in flight is whole.
"""

from dataclasses import dataclass

from ..rules import amount, flag, validate


@validate(bf16=amount, fp16=amount, in_flight=amount, stays=flag, masters=flag, logit=amount, buckets=amount)
@validate(bucket=amount, outputs=flag, source=str)
@dataclass(frozen=True)
class Holds:
    """Bytes of a parameter; ``logit``: of a logit, where the loss is; ``buckets``: of buffers that are always there;
    ``bucket``: of one that gradients are collected in: one in ZeRO 3, and with overlap_comm two in 1 and 2."""

    bf16: float = 4  # its gradient, from the first backward of a step to its end
    fp16: float = 2
    in_flight: float = 2
    stays: bool = False  # is a place for it kept from the first backward on?
    masters: bool = False  # weights are the fp32 masters; ZeRO 3 gathers them in 16 bits, and the next block's too
    logit: float = 6
    buckets: float = 0
    bucket: float = 0
    outputs: bool = False  # does a pipeline's stage keep its output until its backward?
    source: str = ""

    def gradient(self, precision):
        return {"bf16": self.bf16, "fp16": self.fp16, "fp32": 4}[precision]


# The gradient buffer is as large as all parameters, in fp32 for bf16. Transformer Engine adds weight
# gradients to it, and hands autograd an empty tensor in their place, one for each shape, which it never frees. The loss
# is computed in place on a copy of the logits in fp32.
MEGATRON = Holds(
    stays=True,
    source="NVIDIA/Megatron-LM@000c4ac2 megatron/core/tensor_parallel/layers.py; docs/user-guide/features/"
    "dist_optimizer.md@d98e8a64; NVIDIA/TransformerEngine pytorch/module/base.py get_dummy_wgrad (read; since "
    "2.3 by MooreThreads/SimuMax@4dcaae51 simumax/core/config.py)",
)
# 0.19.8 with its defaults, as it was measured (benchmarks/deepspeed_keys.py): gradients in the dtype of the parameters,
# in buckets of 5e8 numbers. What stage 3 keeps from forward to backward is counted in program_memory.py.
DEEPSPEED = Holds(
    bucket=2 * 5e8,
    outputs=True,
    bf16=2,
    source="deepspeedai/DeepSpeed 0.19.8 deepspeed/runtime/engine.py get_data_types; zero/stage_1_and_2.py "
    "setup_buckets; zero/stage3.py __setup_for_real_optimizer; pipe/engine.py _exec_backward_pass (read)",
)
# Of 2022: pipelines with BF16_Optimizer keep the gradients of autograd, in bf16, beside its own in fp32. ZeRO reduces
# and gathers in buckets of 5e8 numbers.
BLOOM = Holds(
    bf16=6,
    buckets=2 * 5e8 * 2,
    outputs=True,
    source="deepspeedai/DeepSpeed@03f6f75c deepspeed/runtime/pipe/engine.py _exec_backward_pass; "
    "bigscience-workshop/bigscience@00327f8c train/tr11-176B-ml/README.md (read); bucket sizes by default (recalled)",
)
# Composer's DEFAULT: parameters in 16 bits, reduced in fp32. The loss is flash-attention's: logits, and their gradient.
FSDP = Holds(
    fp16=4,
    in_flight=2 + 4,
    masters=True,
    logit=4,
    source="mosaicml/llm-foundry@8c8dd48f scripts/train/benchmarking/submit_benchmarks.py, models/mpt/modeling_mpt.py "
    "(read); mosaicml/composer get_mixed_precision (read)",
)
# Logits in 16 bits and in fp32; the gradient of the log-softmax, and what comes out of it.
FSDP_2 = Holds(
    fp16=4,
    in_flight=2 + 4,
    masters=True,
    logit=2 + 3 * 4,
    source="pytorch/torchtitan@00a388d9 torchtitan/components/loss.py (read); torch's log-softmax (recalled)",
)
