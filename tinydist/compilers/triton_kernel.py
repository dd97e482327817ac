"""A kernel as Triton source: a program for each row, or for each block of elements, in one pass.

    @triton.jit
    def kernel(p0, p1, BLOCK: tl.constexpr):                     softmax of rows of 17 numbers
        row, column = tl.program_id(0), tl.arange(0, BLOCK)
        inside = column < 17
        t0 = tl.load(p0 + row * 17 + column, mask=inside)
        t1 = tl.max(tl.where(inside, t0, float("-inf")), 0)
        t2 = t0 - t1
        ...

A GPU's program holds a whole row in registers, so what a row is joined to is known before it is needed: a row is loaded
once, and no number is computed twice. A row must fit: BLOCK is the next power of 2. Programs add up a sum over rows by
atomics, in any order. On a CPU it runs in Triton's interpreter, where TRITON_INTERPRET is 1 before Triton is imported
(``make kernels``).

Source: Tillet, Kung and Cox 2019, Triton.
"""

from importlib.util import module_from_spec, spec_from_file_location
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import triton
from torch.fx import Node

from .operators import BEGIN, POINTWISE, REDUCTIONS, summed_rows

HEAD = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
REDUCE = {"add": "tl.sum", "maximum": "tl.max"}
PRIMITIVES = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "div": "{} / {}",
    "maximum": "tl.maximum({}, {}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum({}, {}, propagate_nan=tl.PropagateNan.ALL)",
    "select": "tl.where({}, {}, {})",
    **{name: f"tl.{name}({{}})" for name in ("exp", "log", "sqrt", "erf")},
}


class Compiled:
    """``compiled(reads, writes)`` runs it; ``source`` is its text."""

    def __init__(self, kernel):
        self.source = Emitter(kernel).source()
        self.pointers = [place for place, node in enumerate(kernel.writes) if node not in kernel.in_place]
        self.totals = [place for place, node in enumerate(kernel.writes) if summed_rows(node)]
        rows, row = (prod(sizes) for sizes, _ in kernel.loops)
        self.block = triton.next_power_of_2(row) if kernel.reduced else 1024
        self.programs = rows if kernel.reduced else triton.cdiv(row, self.block)
        self.folder = TemporaryDirectory()  # Triton reads the text of a function in its file
        path = Path(self.folder.name) / "kernel.py"
        path.write_text(self.source)
        spec = spec_from_file_location(f"kernel_{id(self)}", path)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        self.kernel = module.kernel

    def __call__(self, reads, writes):
        pointers = [*reads, *(writes[place] for place in self.pointers)]
        for place in self.totals:
            writes[place].zero_()
        with torch.cuda.device_of(writes[0]):
            self.kernel[(self.programs,)](*pointers, BLOCK=self.block)


class Emitter:
    """Writes the text; and, for operators.py, the primitives: each is a line that gives a name."""

    def __init__(self, kernel):
        self.kernel, self.lines, self.names = kernel, [], {}
        inputs = kernel.reads + [node for node in kernel.writes if node not in kernel.in_place]
        self.pointers = {node: f"p{place}" for place, node in enumerate(inputs)}
        self.pointers |= {node: self.pointers[like] for node, like in kernel.in_place.items()}

    def source(self):
        arguments = ", ".join(dict.fromkeys(self.pointers.values()))
        self.lines = [
            f"def kernel({arguments}, BLOCK: tl.constexpr):",
            "row = tl.program_id(0)",
            f"column = {'' if self.kernel.reduced else 'row * BLOCK + '}tl.arange(0, BLOCK)",
            f"inside = column < {prod(self.kernel.loops[1][0])}",
        ]
        sums = [node.args[0] if summed_rows(node) else node for node in self.kernel.writes]
        for node, number in zip(self.kernel.writes, [self.number(each) for each in sums]):
            store = "tl.atomic_add" if summed_rows(node) else "tl.store"
            self.lines.append(f"{store}({self.place(node)}, {number}{self.mask(node)})")
        return HEAD + "\n    ".join(self.lines) + "\n"

    def place(self, node):
        rows, row = self.kernel.loops
        terms = [self.pointers[node]]
        for index, (sizes, strides) in (("row", rows), ("column", row)):
            for dim, (size, stride) in enumerate(zip(sizes, strides[node])):
                inner = prod(sizes[dim + 1 :])
                at = f"{index} // {inner}" if inner > 1 else index
                at = f"{at} % {size}" if dim else at
                terms += [f"({at}) * {stride}" if "/" in at or "%" in at else f"{at} * {stride}"] * bool(stride)
        return " + ".join(terms)

    def mask(self, node):
        return ", mask=inside" if any(self.kernel.loops[1][1][node]) else ""

    def number(self, node):
        if not isinstance(node, Node):
            return self.constant(node) if isinstance(node, int | float) else node
        if node not in self.names:
            if node in self.kernel.reads:
                self.names[node] = self.line(f"tl.load({self.place(node)}{self.mask(node)})")
            elif node in self.kernel.nodes and node.target in REDUCTIONS:
                how, x = REDUCTIONS[node.target], self.number(node.args[0])
                self.names[node] = self.line(f"{REDUCE[how]}(tl.where(inside, {x}, {self.constant(BEGIN[how])}), 0)")
            else:
                self.names[node] = POINTWISE[node.target](self, *map(self.number, node.args))
        return self.names[node]

    def line(self, text):
        name = f"t{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    # Primitives.

    def constant(self, number):
        number = float(number)
        return f'float("{number}")' if number in (float("inf"), float("-inf")) or number != number else repr(number)

    def __getattr__(self, name):
        return lambda *values: self.line(PRIMITIVES[name].format(*values))

    def compare(self, sign, a, b):
        return self.line(f"{a} {sign} {b}")
