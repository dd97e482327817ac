"""A graph as a program: kernels and torch's own operators, in order, on one arena.

    capture  ->  fuse  ->  plan memory  ->  generate code  ->  run

To torch a kernel is one operator, ``tinydist::kernel``, which is given what it reads and what it writes. So whoever
observes operators (a profiler, the ledger of a simulated rank) sees one launch, those bytes, and no intermediates.

    moved    bytes that all steps read and write
    held     bytes at the peak, inputs aside: the arena, what is returned, and what torch's operators allocate
"""

from functools import cached_property, partial
from importlib import import_module
from itertools import count
from weakref import WeakValueDictionary

import torch
from torch.fx import Graph
from torch.fx.node import map_arg

from ..rules import must, one_of
from .fusion import fuse, moved
from .graph import value
from .kernel import Kernel, run_with_torch
from .lifetimes import INTO, home, lifetimes, plannable, write_in_place
from .memory_plan import Buffer, greedy_by_size, most_alive, side_by_side

PLANS = {"reuse": greedy_by_size, "separate": side_by_side}
BACKENDS = ("torch", "llvm", "triton")

running, numbers = WeakValueDictionary(), count()
library = torch.library.Library("tinydist", "FRAGMENT")
library.define("kernel(int number, Tensor[] reads, Tensor(a!)[] writes) -> ()")
library.impl("kernel", lambda number, reads, writes: running[number](reads, writes), "CompositeExplicitAutograd")
torch.library.register_fake("tinydist::kernel", lambda number, reads, writes: None, lib=library)


def compiler(backend):
    """The function that makes a kernel executable."""
    if backend == "torch":
        return run_with_torch
    package, target = {"llvm": ("llvmlite", "compilers"), "triton": ("triton", "kernels")}[backend]
    try:
        return import_module(f".{backend}_kernel", __package__).Compiled
    except ModuleNotFoundError as error:
        raise ValueError(
            f"Program: backend={backend} needs {package}, which is not installed: make {target}"
        ) from error


class Program:
    """``program(*inputs)`` gives what the captured function gives.

    backend:  "torch": each kernel by torch's operators, which needs nothing else; "llvm" or "triton".
    plan:     "reuse", or "separate": each intermediate has bytes of its own.
    """

    def __init__(self, graph, *, backend="torch", plan="reuse"):
        must("Program", "graph", Graph, graph)
        must("Program", "backend", one_of(BACKENDS), backend)
        must("Program", "plan", one_of(PLANS), plan)
        self.inputs, self.results = graph.find_nodes(op="placeholder"), graph.output_node().args[0]
        self.steps = [step for step in fuse(graph) if isinstance(step, Kernel) or step.op == "call_function"]
        self.kernels = [step for step in self.steps if isinstance(step, Kernel)]
        self.lives = lifetimes(self.steps, graph)
        self._plan(PLANS[plan], plannable(self.steps, self.lives), plan == "reuse")
        self.runners = {each: (run_with_torch if 0 in each.shape else compiler(backend))(each) for each in self.kernels}
        self.numbers = {kernel: next(numbers) for kernel in self.kernels}
        running.update({self.numbers[kernel]: run for kernel, run in self.runners.items()})

    moved = cached_property(lambda self: sum(map(moved, self.steps)))
    launches = cached_property(lambda self: len([step for step in self.steps if moved(step)]))

    @cached_property
    def held(self):
        return self.arena + most_alive([life for node, life in self.lives.items() if node not in self.offsets])

    def _plan(self, plan, planned, reuse):
        """offsets: {node: place in the arena}."""
        over = write_in_place(self.steps, self.lives, planned) if reuse else {}
        lives = {}
        for node in [node for node in self.lives if node in planned]:
            first, last = node, self.lives[node]
            while first in over:
                first = over[first]
            known = lives.get(first, last)
            lives[first] = Buffer(last.nbytes, min(known.first, last.first), max(known.last, last.last))
        offsets, self.arena = plan([*lives.values()])
        self.offsets = dict(zip(lives, offsets))
        for node in over:  # in the order of steps
            self.offsets[node] = self.offsets[over[node]]

    def __call__(self, *inputs):
        self._check(inputs)
        found = dict(zip(self.inputs, inputs))
        arena = torch.empty(self.arena, dtype=torch.uint8, device=inputs[0].device if inputs else None)
        with torch.no_grad():
            for place, step in enumerate(self.steps):
                self._run(step, found, arena)
                for node in [node for node in found if home(node) in self._ending[place]]:
                    del found[node]
        return map_arg(self.results, found.__getitem__)

    @cached_property
    def _ending(self):
        """{step: what is needed no more behind it}"""
        return [{node for node, life in self.lives.items() if life.last == place} for place in range(len(self.steps))]

    def _run(self, step, found, arena):
        if isinstance(step, Kernel):
            reads, writes = [found[node] for node in step.reads], [self._place(node, arena) for node in step.writes]
            torch.ops.tinydist.kernel(self.numbers[step], reads, writes)
            found.update(zip(step.writes, writes))
        else:
            run = partial(INTO[step.target], out=self._place(step, arena)) if step in self.offsets else step.target
            found[step] = run(*map_arg(step.args, found.__getitem__), **step.kwargs)

    def _place(self, node, arena):
        like = value(node)
        if node not in self.offsets:
            return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
        offset = self.offsets[node]
        return arena[offset : offset + like.nbytes].view(like.dtype).as_strided(like.shape, like.stride())

    def _check(self, inputs):
        if len(inputs) != len(self.inputs):
            raise ValueError(f"Program: it was captured with {len(self.inputs)} inputs, got {len(inputs)}")
        for place, (given, node) in enumerate(zip(inputs, self.inputs)):
            must("Program", f"input {place}", torch.Tensor, given)
            if laid_out(given) != laid_out(value(node)):
                rule = f"Program: input {place} must be as it was captured, {laid_out(value(node))}"
                raise ValueError(f"{rule}, got {laid_out(given)}")


def laid_out(tensor):
    return f"{list(tensor.shape)} of {tensor.dtype} with strides {list(tensor.stride())} on {tensor.device}"
