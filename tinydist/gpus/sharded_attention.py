"""DTensor's sharding of attention: torch has the rules of the GPU's kernels, and none of the processor's."""

import torch
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

aten = torch.ops.aten
BATCH, HEADS = 0, 1
WHOLE_OR_CUT = Replicate(), Shard(BATCH), Shard(HEADS)  # [B, H, T, D]: heads and sequences know nothing of one another


def alike(outputs, inputs):
    """A rule: all ``outputs`` and the first ``inputs`` arguments are cut in the same way."""

    def rule(*args, **kwargs):
        others = [None] * (len(args) - inputs)
        return [([cut] * outputs, [cut] * inputs + others) for cut in WHOLE_OR_CUT]

    return rule


register_sharding(aten._scaled_dot_product_flash_attention_for_cpu.default)(alike(outputs=2, inputs=3))
register_sharding(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)(alike(outputs=3, inputs=6))
