"""What each collective means, over plain lists: the tensor of each rank before, that of each rank after.

    broadcast        A . . .   ->  A A A A          scatter          ABCD . . .  ->  A B C D
    reduce           A B C D   ->  Σ . . .          gather           A B C D     ->  ABCD . . .
    all_reduce       A B C D   ->  Σ Σ Σ Σ          all_gather       A B C D     ->  ABCD ABCD ABCD ABCD
    all_to_all       rows      ->  columns          reduce_scatter   rows        ->  Σ of each column

No rank talks here. The algorithms of the other files must give these results (MPI: A Message-Passing Interface
Standard 4.1, chapter 6).
"""

from torch.distributed import ReduceOp

from .reduction import combined

SUM = ReduceOp.SUM


def broadcast(tensors, root=0):
    return [tensors[root]] * len(tensors)


def scatter(parts):
    """``parts``: what the root has for each rank."""
    return list(parts)


def gather(tensors, root=0):
    return [list(tensors) if rank == root else None for rank in range(len(tensors))]


def reduce(tensors, root=0, op=SUM):
    return [combined(tensors, op) if rank == root else tensor for rank, tensor in enumerate(tensors)]


def all_gather(tensors):
    return [list(tensors)] * len(tensors)


def reduce_scatter(parts, op=SUM):
    """``parts[rank][destination]``: rank r keeps the sum of all ranks' part r."""
    return [combined(column, op) for column in zip(*parts, strict=True)]


def all_reduce(tensors, op=SUM):
    return [combined(tensors, op)] * len(tensors)


def all_to_all(parts):
    """``parts[source][destination]`` becomes ``parts[destination][source]``."""
    return [list(column) for column in zip(*parts, strict=True)]


def barrier(arrivals):
    """Times, not tensors: nobody goes on before the last has come."""
    return [max(arrivals)] * len(arrivals)
