"""ZeRO stage 2: gradients are sharded, too.

    bytes per parameter, 16 bits and Adam    gradients in fp32       in 16 bits
    stage 1     keeps all gradients          2 + 4 + 12/p            2 + 2 + 12/p
    stage 2     keeps its own shard's        2 + (4 + 12)/p          2 + (2 + 12)/p

    backward    layer 3          layer 2          layer 1
                bucket 0 fills   is reduced       is freed but for the own shard
                                 bucket 1 fills   is reduced
                                                  bucket 2 fills

Bytes sent: as in stage 1. Each microbatch of a step reduces, unless it runs in ``no_sync``, which keeps unsharded
gradients. Source: Rajbhandari et al., ZeRO, 2019, sections 5.2 and 7.2.1.
"""

from .zero1 import ZeRO1


class ZeRO2(ZeRO1):
    """``ZeRO1``, but

    backward    a bucket is reduced as soon as it is full, as in stage 1, and then freed
    """

    def _is_reduced(self, bucket):
        """The bucket's mean is reduce-scattered. This is where stage 2 frees gradients.

        (``parameter.grad`` is freed already: it was added to ``bucket.gradients`` as soon as it was ready.)
        """
        bucket.grad = bucket.own_copy(bucket.grad)  # this rank's shard of the mean is all that it steps on;
        bucket.gradients = bucket.gradient_of = None  # the shards of other ranks are freed
