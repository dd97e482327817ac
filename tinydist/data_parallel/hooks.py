"""What becomes of a full bucket: a hook starts its reduction, and returns what ends it.

finish = hook(flat, share, group)      # at once, in the middle of backward
finish()                               # at the end of backward: ``flat`` is the sum of all ranks' flat * share
"""

import torch
import torch.distributed as dist

from ..rules import part, takes


@takes(flat=torch.Tensor, share=part, group=dist.ProcessGroup)
def all_reduce(flat, share, group=None):
    """2(p-1)/p of the bytes a rank. Divided before the sum, which else might overflow where the mean does not."""
    return dist.all_reduce(flat.mul_(share), group=group, async_op=True).wait


@takes(dtype=torch.dtype)
def compressed(dtype=torch.bfloat16):
    """A hook that sends gradients as ``dtype``: half of the bytes, and bfloat16 keeps 8 bits of each number."""

    def reduce_compressed(flat, share, group=None):
        small = flat.to(dtype).mul_(share)
        work = dist.all_reduce(small, group=group, async_op=True)

        def finish():
            work.wait()
            flat.copy_(small)

        return finish

    return reduce_compressed
