"""Stage 2: every rank keeps the gradients of its own shard alone, too.

    bytes a parameter, 16 bits and Adam      gradients in fp32       in 16 bits
    stage 1     all gradients stay           2 + 4 + 12/p            2 + 2 + 12/p
    stage 2     those of the own shard do    2 + (4 + 12)/p          2 + (2 + 12)/p

    backward    layer 3          layer 2          layer 1
                bucket 0 fills   is reduced       is freed but for the own part
                                 bucket 1 fills   is reduced
                                                  bucket 2 fills

Bytes sent: what stage 1 sends. Each microbatch of a step reduces, unless it runs in ``no_sync``, which keeps whole
gradients meanwhile. Source: Rajbhandari et al., ZeRO, 2019, sections 5.2 and 7.2.1.
"""

from .optimizer_states import OptimizerStates


class Gradients(OptimizerStates):
    """Stage 1, but

    backward    a bucket is reduced as soon as it is full, as in stage 1, and then freed
    """

    def _is_reduced(self, bucket):
        """All ranks have added up the bucket: its mean is there, in parts. This is where stage 2 frees gradients.

        (``parameter.grad`` is gone already: it was added to ``bucket.gradients`` as soon as it came.)
        """
        bucket.grad = bucket.own_copy(bucket.grad)  # of the mean, this rank's part is all that it steps on;
        bucket.gradients = bucket.gradient_of = None  # of the others' parts it needs nothing: they are free
