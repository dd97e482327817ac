"""Communication hooks: a hook starts the reduction of a full bucket and returns a function that waits for it.

finish = hook(bucket, share, group)    # starts immediately, during backward
finish()                               # at the end of backward: ``bucket.flat`` is the sum of all ranks' flat * share
"""

import torch
import torch.distributed as dist

from ..rules import part, validate
from .buckets import Bucket


@validate(bucket=Bucket, share=part, group=dist.ProcessGroup)
def all_reduce(bucket, share, group=None):
    """All-reduce: 2(p-1)/p of the bytes per rank. Divides before the sum, which could otherwise overflow."""
    return dist.all_reduce(bucket.flat.mul_(share), group=group, async_op=True).wait


@validate(dtype=torch.dtype)
def compressed(dtype=torch.bfloat16):
    """A hook that compresses gradients to ``dtype``: half of the bytes; bfloat16 has 8 significant bits."""

    def reduce_compressed(bucket, share, group=None):
        small = bucket.flat.to(dtype).mul_(share)
        work = dist.all_reduce(small, group=group, async_op=True)

        def finish():
            work.wait()
            bucket.flat.copy_(small)

        return finish

    return reduce_compressed
