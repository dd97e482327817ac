"""PowerSGD: a matrix of gradients as the product of two thin ones, M = P Q^T, by one step of a power iteration.

    P = M Q            all-reduce of P, [a, r]; its columns are made orthonormal
    Q = M^T P          all-reduce of Q, [b, r]; it is kept for the next step, whose M is much like this one
    M = P Q^T          what is left out is added to the next step's M

The sum of all P is that of the sum of all M, and Q's too, so two all-reduces do, of r (a + b) numbers in place of a b:
signs, and the largest k, cannot be added on the way. What it would not halve goes in full, vectors among it.
Source: Vogels et al., PowerSGD, 2019, algorithms 1 and 2; equal to torch's powerSGD_hook.
"""

import torch
import torch.distributed as dist

from ..annotate import purpose
from ..rules import count, positive, validate, whole


@validate(rank=count, start=whole, min_compression_rate=positive, seed=whole)
class PowerSGD:
    """Communication hook for ``DDP(hook=PowerSGD(rank=2))``: each parameter has an error and a Q of its own.

    rank:   columns of P and Q
    start:  steps before it begins, in which gradients are all-reduced in full: they change fast then (torch's: 1,000)
    """

    def __init__(self, rank=1, start=1000, min_compression_rate=2, seed=0):
        self.rank, self.start, self.rate = rank, start, min_compression_rate
        self.seeds = torch.Generator().manual_seed(seed)  # the same Q on all ranks
        self.calls, self.errors, self.q = {}, {}, {}  # of each parameter

    def __call__(self, bucket, share, group=None):
        bucket.flat.mul_(share)
        for p in bucket.parameters:
            self.calls[p] = self.calls.get(p, -1) + 1
        if self.calls[bucket.parameters[0]] < self.start:
            return dist.all_reduce(bucket.flat, group=group, async_op=True).wait
        thin = [p for p in bucket.parameters if self.pays(p)]
        rest = [bucket.views[p] for p in bucket.parameters if not self.pays(p)]
        matrices = [self._corrected(p, bucket.views[p], share) for p in thin]
        finish_rest = all_reduce_flat(rest, group)
        columns = [matrix @ self._columns(p, matrix) for p, matrix in zip(thin, matrices)]
        finish_columns = all_reduce_flat(columns, group)

        def finish():
            finish_rest()
            finish_columns()
            for p, matrix, column in zip(thin, matrices, columns):
                column.copy_(orthonormal(column))
                self.q[p] = matrix.T @ column
            all_reduce_flat([self.q[p] for p in thin], group)()
            for p, matrix, column in zip(thin, matrices, columns):
                result = column @ self.q[p].T
                self.errors[p] = matrix / share - result
                bucket.views[p].copy_(result.view_as(bucket.views[p]))

        return finish

    def pays(self, p):
        """Does it save enough bytes to be compressed?"""
        if p.dim() < 2:
            return False
        rows, columns = len(p), p.numel() // len(p)
        return (rows + columns) * self.rank * self.rate < rows * columns

    def _corrected(self, p, view, share):
        """This rank's part of the mean, with what was left out in the last step: [a, b]."""
        matrix = view.reshape(len(view), -1).clone()
        return matrix.add_(self.errors[p], alpha=share) if p in self.errors else matrix

    def _columns(self, p, matrix):
        """Q, [b, r], orthonormal: of the last step's columns, or of columns by chance."""
        if p not in self.q:
            self.q[p] = torch.randn(matrix.shape[1], self.rank, generator=self.seeds).to(matrix)
        return orthonormal(self.q[p])


def orthonormal(columns):
    """Computed in fp32 at least: LAPACK has no half precision."""
    wide = columns.to(torch.promote_types(columns.dtype, torch.float32))
    return torch.linalg.qr(wide)[0].to(columns.dtype)


def all_reduce_flat(tensors, group):
    """Start one all-reduce of all of them; returns a function that waits, and writes the sums into them."""
    if not tensors:
        return lambda: None
    with purpose("communication"):
        flat = torch.cat([tensor.flatten() for tensor in tensors])
    work = dist.all_reduce(flat, group=group, async_op=True)

    def finish():
        work.wait()
        for tensor, total in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
            tensor.copy_(total.view_as(tensor))

    return finish
