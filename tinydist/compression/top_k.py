"""Top-k: the k elements of each bucket with the largest magnitude, and their indices; the rest is kept for later steps.

    corrected = gradient + error
    sent:  the largest k numbers, 4 bytes each, and their positions, 8 bytes
    error = corrected without them

Ranks choose different positions, so nothing can be added on the way: an all-gather, (p-1) 12k bytes a rank, which grows
with the ranks; a ring's all-reduce does not. From k/n = 2/(3p) on it sends more than the all-reduce of fp32.
Source: Lin et al., Deep Gradient Compression, 2018, section 3; Stich et al., Sparsified SGD with Memory, 2018.
"""

import torch.distributed as dist

from ..annotate import purpose
from ..rules import part, validate


@validate(density=part)
class TopK:
    """Communication hook for ``DDP(hook=TopK(0.01))``. ``density``: which part of the numbers is sent."""

    def __init__(self, density):
        self.density, self.errors = density, {}  # of each parameter, as buckets change after the first step

    def __call__(self, bucket, share, group=None):
        flat, p = bucket.flat, dist.get_world_size(group)
        for parameter in bucket.parameters:
            if parameter in self.errors:
                bucket.views[parameter].add_(self.errors[parameter])
        with purpose("communication"):
            chosen = flat.abs().topk(max(1, round(self.density * flat.numel()))).indices
            values, indices = flat[chosen] * share, chosen
            all_values, all_indices = values.new_empty(p * len(values)), indices.new_empty(p * len(indices))
        flat[chosen] = 0
        self.errors |= {parameter: view.clone() for parameter, view in bucket.views.items()}
        works = [
            dist.all_gather_single(all_values, values, group=group, async_op=True),
            dist.all_gather_single(all_indices, indices, group=group, async_op=True),
        ]

        def finish():
            for work in works:
                work.wait()
            flat.zero_().index_add_(0, all_indices, all_values)

        return finish
