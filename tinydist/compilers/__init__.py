"""What a compiler does to a step: all operators are known before one runs, so fewer kernels and bytes will do.

    graph.py            a function as a graph of operators, each with the shape of what it gives
    decompositions.py   layers as the steps that they are: softmax, layer norm, GELU, and their backward
    operators.py        pointwise operators, as expressions of a few primitives
    kernel.py           a kernel: several operators in one nest of loops
    fusion.py           which operators become one kernel
    lifetimes.py        when each tensor is alive, and what may be written in place
    memory_plan.py      tensors that are not alive together share one arena
    program.py          kernels and torch's own operators, in order: it runs
    llvm_kernel.py      a kernel as LLVM IR, compiled for this processor (needs llvmlite)
    llvm_math.py        arithmetic in LLVM IR; exp and erf, so that they can be computed on vectors
    triton_kernel.py    a kernel as Triton source (needs Triton)
    sharding.py         layouts of all tensors of a graph, from those of its inputs
    partition.py        the graph of one rank, with the collectives that the layouts ask for

    x, w, b  ->  capture  ->  mm, add, tanh, mul  ->  fuse  ->  mm, [add tanh mul]  ->  plan  ->  code

| a chain of k pointwise operators on n bytes | moves | holds besides input and output |
|---|---|---|
| one by one                                  | 2 k n | up to 2 n |
| fused                                       | 2 n   | nothing |

Only the order and the grouping of operators change. What is computed does not, but for the order of sums.
"""

from .fusion import fuse
from .graph import capture, with_gradients
from .memory_plan import Buffer, greedy_by_size, most_alive, side_by_side
from .program import Program

__all__ = [
    "Buffer",
    "Program",
    "capture",
    "fuse",
    "greedy_by_size",
    "most_alive",
    "side_by_side",
    "with_gradients",
]
