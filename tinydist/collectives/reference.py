"""Reference semantics of each collective on plain lists: every rank's tensor before and after.

    broadcast        A . . .   ->  A A A A          scatter          ABCD . . .  ->  A B C D
    reduce           A B C D   ->  Σ . . .          gather           A B C D     ->  ABCD . . .
    all_reduce       A B C D   ->  Σ Σ Σ Σ          all_gather       A B C D     ->  ABCD ABCD ABCD ABCD
    all_to_all       rows      ->  columns          reduce_scatter   rows        ->  Σ of each column

No communication here. The algorithms of the other files must give these results (MPI: A Message-Passing Interface
Standard 4.1, chapter 6).
"""

from torch import Tensor
from torch.distributed import ReduceOp

from ..rules import each_of, validate
from .messages import check_root
from .reduction import combined, known

SUM = ReduceOp.SUM


@validate(tensors=each_of(Tensor))
def broadcast(tensors, root=0):
    check_root(root, len(tensors))
    return [tensors[root]] * len(tensors)


@validate(parts=each_of(Tensor))
def scatter(parts):
    """``parts``: what the root has for each rank."""
    return list(parts)


@validate(tensors=each_of(Tensor))
def gather(tensors, root=0):
    check_root(root, len(tensors))
    return [list(tensors) if rank == root else None for rank in range(len(tensors))]


@validate(tensors=each_of(Tensor), op=known)
def reduce(tensors, root=0, op=SUM):
    check_root(root, len(tensors))
    return [combined(tensors, op) if rank == root else tensor for rank, tensor in enumerate(tensors)]


@validate(tensors=each_of(Tensor))
def all_gather(tensors):
    return [list(tensors)] * len(tensors)


@validate(parts=each_of(each_of(Tensor)), op=known)
def reduce_scatter(parts, op=SUM):
    """``parts[rank][destination]``: rank r keeps the sum of all ranks' part r."""
    return [combined(column, op) for column in zip(*parts, strict=True)]


@validate(tensors=each_of(Tensor), op=known)
def all_reduce(tensors, op=SUM):
    return [combined(tensors, op)] * len(tensors)


@validate(parts=each_of(each_of(Tensor)))
def all_to_all(parts):
    """``parts[source][destination]`` becomes ``parts[destination][source]``."""
    return [list(column) for column in zip(*parts, strict=True)]
