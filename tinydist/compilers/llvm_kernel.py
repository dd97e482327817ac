"""A kernel as LLVM IR: scalar loops, which LLVM vectorizes.

    define void @kernel(float* noalias %x, float* noalias %y) {
      i = 0, 1, ... n - 1                        one number an iteration, sizes and strides are constants
        %0 = load x[i] ...  store y[i]           what is in between stays in registers

Nothing here is about vectors. LLVM's loop vectorizer runs 8 or 16 iterations at once if it may, and the IR says that it
may: pointers are ``noalias``, a sum may be added up in another order (``reassoc``), products and sums may join
(``contract``), and there is no call in the loop (llvm_math.py).

Needs llvmlite (``make compilers``). Source: Lattner and Adve 2004, LLVM.
"""

import ctypes
from contextlib import ExitStack, contextmanager

import torch
from llvmlite import binding, ir
from torch.fx import Node

from .graph import value
from .llvm_math import BOOL, Primitives
from .operators import BEGIN, FLOATS, POINTWISE, REDUCTIONS, dtypes_of_numbers, summed_rows

I64 = ir.IntType(64)


class Compiled:
    """``compiled(reads, writes)`` runs it; ``source`` is the IR as written, ``optimized`` what LLVM made of it."""

    def __init__(self, kernel):
        self.source = str(module_of(kernel))
        self.optimized, self.engine = compiled(self.source)
        self.pointers = [place for place, node in enumerate(kernel.writes) if node not in kernel.in_place]
        types = [ctypes.c_void_p] * (len(kernel.reads) + len(self.pointers))
        self.call = ctypes.CFUNCTYPE(None, *types)(self.engine.get_function_address("kernel"))

    def __call__(self, reads, writes):
        self.call(*[each.data_ptr() for each in (*reads, *(writes[place] for place in self.pointers))])


def machine():
    """This processor, as LLVM's target; an engine frees the one that it was given, so each gets its own."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    options = dict(cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten())
    return target.create_target_machine(opt=3, jit=True, **options)


def compiled(source):
    module = binding.parse_assembly(source)
    module.verify()
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = options.loop_unrolling = True
    optimizer = machine()
    builder = binding.create_pass_builder(optimizer, options)
    builder.getModulePassManager().run(module, builder)
    text, engine = str(module), binding.create_mcjit_compiler(module, machine())
    engine.finalize_object()
    return text, engine


def module_of(kernel):
    module = ir.Module(name=kernel.name[:60])
    module.triple, module.data_layout = binding.get_default_triple(), str(machine().target_data)
    inputs = kernel.reads + [node for node in kernel.writes if node not in kernel.in_place]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType()] * len(inputs)), "kernel")
    for argument in function.args:
        argument.add_attribute("noalias")
    pointers = dict(zip(inputs, function.args))
    pointers |= {node: pointers[like] for node, like in kernel.in_place.items()}
    Emitter(kernel, function, pointers).emit()
    return module


class Emitter(Primitives):
    """Writes the loops."""

    def __init__(self, kernel, function, pointers):
        self.kernel, self.pointers = kernel, pointers
        (dtype,) = dtypes_of_numbers(*kernel.nodes)
        super().__init__(ir.IRBuilder(function.append_basic_block("entry")), dtype == torch.float32)

    def emit(self):
        rows, row = self.kernel.loops
        self.joined, self.at_row = {}, []  # reduction -> its number for this row
        totals = [node for node in self.kernel.writes if summed_rows(node)]
        with self.loops(row[0] if totals else []) as self.at:
            for node in totals:
                self.builder.store(self.constant(0), self.address(node, self.type))
        with self.loops(rows[0]) as self.at_row:
            for level in range(1, max(self.kernel.levels.values()) + 1):
                self.reduce(self.kernel.reductions(level), row)
            writes = [node for node in self.kernel.writes if node not in totals]
            of_rows = [node for node in writes if self.joined and not any(row[1][node])]
            self.store([node for node in self.kernel.writes if node not in of_rows], row[0])
            self.store(of_rows, [])
        self.builder.ret_void()

    def reduce(self, nodes, row):
        totals = {}
        for node in nodes:
            with self.builder.goto_entry_block():
                totals[node] = self.builder.alloca(self.type)
            self.builder.store(self.constant(BEGIN[REDUCTIONS[node.target]]), totals[node])
        with self.loops(row[0]) as self.at:
            found = {}
            for node in nodes:
                join = self.add_in_any_order if REDUCTIONS[node.target] == "add" else self.maximum
                number = self.number(node.args[0], found)
                self.builder.store(join(self.builder.load(totals[node], typ=self.type), number), totals[node])
        self.joined |= {node: self.builder.load(total, typ=self.type) for node, total in totals.items()}

    def store(self, nodes, sizes):
        """All are computed before the first is written: it may replace what another one reads."""
        with self.loops(sizes if nodes else []) as self.at:
            found = {}
            sums = [node.args[0] if summed_rows(node) else node for node in nodes]
            for node, number in zip(nodes, [self.number(each, found) for each in sums]):
                if summed_rows(node):
                    number = self.add(self.builder.load(self.address(node, self.type), typ=self.type), number)
                number = self.builder.zext(number, ir.IntType(8)) if number.type == BOOL else number
                self.builder.store(number, self.address(node, number.type))

    def number(self, node, found):
        """Of one iteration."""
        if not isinstance(node, Node):
            return self.constant(node) if isinstance(node, int | float) else node
        if node in self.joined:
            return self.joined[node]
        if node not in found:
            if node in self.kernel.reads:
                kept = self.type if value(node).dtype in FLOATS else ir.IntType(8)
                loaded = self.builder.load(self.address(node, kept), typ=kept)
                found[node] = loaded if kept == self.type else self.builder.trunc(loaded, BOOL)
            else:
                found[node] = POINTWISE[node.target](self, *[self.number(each, found) for each in node.args])
        return found[node]

    def address(self, node, kind):
        rows, row = self.kernel.loops
        place = ir.Constant(I64, 0)
        for index, stride in [*zip(self.at_row, rows[1][node]), *zip(self.at, row[1][node])]:
            if stride:
                place = self.builder.add(place, self.builder.mul(index, ir.Constant(I64, stride), flags=["nsw"]))
        return self.builder.gep(self.pointers[node], [place], inbounds=True, source_etype=kind)

    @contextmanager
    def loops(self, sizes):
        with ExitStack() as stack:
            yield [stack.enter_context(self.loop(size)) for size in sizes]

    @contextmanager
    def loop(self, size):
        builder, before = self.builder, self.builder.block
        body, after = builder.append_basic_block("loop"), builder.append_basic_block("after")
        builder.branch(body)
        builder.position_at_end(body)
        index = builder.phi(I64)
        index.add_incoming(ir.Constant(I64, 0), before)
        yield index
        following = builder.add(index, ir.Constant(I64, 1), flags=["nuw", "nsw"])
        index.add_incoming(following, builder.block)
        builder.cbranch(builder.icmp_unsigned("<", following, ir.Constant(I64, size)), body, after)
        builder.position_at_end(after)
