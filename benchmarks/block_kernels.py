"""Which kernels four compilers make of one MLP block, and what each of them reads and writes.

    .venv-compilers/bin/python benchmarks/block_kernels.py [--write]

x + down(silu(gate(n)) * up(n)), with n = x / rms(x), forward, float32, [256, 128] and a hidden size of 384.
TorchInductor's kernels are read in the Python that it writes, XLA's in its HLO, TVM's in Relax, after all have fused.
Needs a C++ compiler, JAX and TVM (``pip install apache-tvm``). ``--write`` puts the rows where notebook 20 reads them.
"""

import argparse
import os
import re
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks import csv_rows
from tinydist.compilers import Program, capture
from tinydist.compilers.kernel import Kernel

FILE = Path(__file__).parents[1] / "notebooks" / "data" / "20_block.csv"
T, D, V = 256, 128, 384
SHAPES = {"x": (T, D), "gate": (D, V), "up": (D, V), "down": (V, D)}


def block(x, gate, up, down):
    n = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    return x + (F.silu(n @ gate) * (n @ up)) @ down


def shaped(shape):
    return "x".join(map(str, shape))


def ours():
    for step in Program(capture(block, *map(torch.empty, SHAPES.values()))).steps:
        fused = isinstance(step, Kernel)
        reads, writes = (step.reads, step.writes) if fused else (step.all_input_nodes, [step])
        name = "_".join(node.name for node in step.nodes) if fused else step.name
        yield name, *([shaped(node.meta["val"].shape) for node in nodes] for nodes in (reads, writes))


def inductor():
    """Buffers by name, with the shapes that they were made with; a kernel writes what comes last, or in place."""
    from torch._inductor.utils import run_and_get_code

    _, (code,) = run_and_get_code(torch.compile(block), *map(torch.randn, SHAPES.values()))
    shapes = {f"arg{place}_1": shape for place, shape in enumerate(SHAPES.values())}
    signatures = dict(re.findall(r"^(\w+) = async_compile\.\w+\((\[.*?\])", code, re.MULTILINE))
    for line in code.partition("def call")[2].splitlines():
        if made := re.match(r" *(\w+) = empty_strided_cpu\(\((.*?)\)", line):
            shapes[made[1]] = tuple(int(each) for each in made[2].split(",") if each.strip())
        elif again := re.match(r" *(\w+) = (\w+); del", line):
            shapes[again[1]] = shapes[again[2]]
        elif called := re.match(r" *((?:extern_kernels\.|cpp_fused)\w+)\((.*)\)", line):
            tensors = re.findall(r"\b(?:arg|buf)\w+", called[2])
            if signature := signatures.get(called[1]):  # const: it is read; a float* may be read, too (silu's)
                kinds = [each.strip(" '[]").startswith("const") for each in signature.split(",")]
                writes = [name for name, const in zip(tensors, kinds) if not const]
                both = re.findall(r"in_out_ptr\d", code.partition(called[1])[2].partition("''')")[0])
                reads = [name for name, const in zip(tensors, kinds) if const] + writes[: len(set(both))]
            else:
                *reads, last = tensors
                writes = [last]
            yield called[1], [shaped(shapes[name]) for name in reads], [shaped(shapes[name]) for name in writes]


def hlo():
    """What XLA compiles for one CPU device."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    def block(x, gate, up, down):
        n = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)
        return x + (jax.nn.silu(n @ gate) * (n @ up)) @ down

    return (
        jax.jit(block).lower(*[jax.ShapeDtypeStruct(each, "float32") for each in SHAPES.values()]).compile().as_text()
    )


def xla():
    shapes = {}
    for line in hlo().partition("ENTRY")[2].splitlines():
        if made := re.match(r" *(?:ROOT )?%(\S+) = f32\[([\d,]*)\]\S* (\w[\w-]*)\((.*?)\)", line):
            name, shape, operation, reads = made.groups()
            shapes[name] = shape.replace(",", "x")
            if operation != "parameter":
                yield name, [shapes[each.strip(" %")] for each in reads.split(",")], [shapes[name]]


def tvm():
    from tvm import relax
    from tvm.relax import transform
    from tvm.script.relax import Tensor as tensor

    builder = relax.BlockBuilder()
    x, gate, up, down = (relax.Var(name, tensor(shape, "float32")) for name, shape in SHAPES.items())
    op, small = relax.op, relax.const(1e-6, "float32")
    with builder.function("main", [x, gate, up, down]):
        with builder.dataflow():
            mean = builder.emit(op.mean(builder.emit(op.multiply(x, x)), axis=-1, keepdims=True))
            n = builder.emit(op.multiply(x, builder.emit(op.rsqrt(builder.emit(op.add(mean, small))))))
            gated = builder.emit(op.nn.silu(builder.emit(op.matmul(n, gate))))
            hidden = builder.emit(op.multiply(gated, builder.emit(op.matmul(n, up))))
            made = builder.emit_output(op.add(x, builder.emit(op.matmul(hidden, down))))
        builder.emit_func_output(made)
    passes = transform.LegalizeOps, transform.AnnotateTIROpPattern, transform.FuseOps, transform.FuseTIR
    module = builder.get()
    for each in passes:
        module = each()(module)
    shapes = {name: shaped(shape) for name, shape in SHAPES.items()}
    call = r"(\w+) = R\.call_tir\((?:cls\.)?(\w+), \((.*?)\), out_\w+=R\.Tensor\(\((.*?)\)"
    for made, name, reads, shape in re.findall(call, module["main"].script()):
        shapes[made] = shape.replace(", ", "x")
        yield name, [shapes[each.strip()] for each in reads.split(",") if each.strip()], [shapes[made]]


SYSTEMS = {"tinydist": ours, "TorchInductor": inductor, "XLA": xla, "TVM": tvm}


def rows():
    for system, kernels in SYSTEMS.items():
        for name, reads, writes in kernels():
            yield {"system": system, "kernel": name, "reads": " ".join(reads), "writes": " ".join(writes)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    found = [each | csv_rows.measured_on("torch", "jax", "apache-tvm") for each in rows()]
    for each in found:
        print("{system:14} {kernel:50} {reads} -> {writes}".format(**each))
    if parser.parse_args().write:
        csv_rows.write(FILE, found)


if __name__ == "__main__":
    main()
