"""Compile a kernel for a GPU that is not present: report registers, spills, shared memory and loop instructions.

    python -m tinydist.attention.kernels.compiled [--quick] [--json]

Triton compiles for any architecture; its disassembler tells what came out. A register that does not fit is spilled to
the stack, which is slow memory. Shared memory that does not fit is an error when the kernel starts. An issue slot is
one instruction of a warp; each of an SM's four schedulers issues one per cycle.
"""

import argparse
import itertools
import json
import re
import subprocess
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from .configs import SHARED, WIDEST_DESCRIBED, configs
from .launch import KERNELS, KernelArguments, arguments_of, prepare, view

PROGRAM = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?(\S+)\s*(.*?);", re.M)


class Absent(NamedTuple):
    """A target device that is not present, for Triton to compile for."""

    architecture: int

    def get_current_device(self):
        return self.architecture

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", self.architecture, 32)


class KernelCase(NamedTuple):
    """Which kernel, and of what. d: head dim; edges: of the band, "none", "causal" or "window"."""

    architecture: int
    kind: str
    tile: tuple  # queries, keys, warps, stages
    d: int
    dtype: str = "bfloat16"
    edges: str = "causal"
    tma: bool = False
    packed: bool = False
    offsets: bool = False
    tokens: int = 512


class Compiled(NamedTuple):
    registers: int  # of a thread
    stack: int  # bytes of a thread: what was spilled
    shared: int  # bytes of a program
    slots: list  # of the loops with matmuls, in order: issue slots for 64 x 64 scores and one scheduler


def cases(architectures, kinds, dims, edges, dtypes=("bfloat16",), packed=False):
    """All that is offered there, the first choice first."""
    for architecture, kind, d, dtype in itertools.product(architectures, kinds, dims, dtypes):
        for tma in sorted({False, architecture == 90 and d <= WIDEST_DESCRIBED[kind]}, reverse=True):
            for tile in configs(kind, architecture, d, getattr(torch, dtype).itemsize, tma, packed):
                yield from (KernelCase(architecture, kind, tile, d, dtype, each, tma, packed) for each in edges)


def compiled(case):
    driver.set_active(Absent(case.architecture))
    arguments = arguments_for(case)
    M, N, warps, stages = case.tile
    arguments |= dict(M=M, N=N, num_warps=warps, num_stages=stages, enable_fp_fusion=True)
    prepare(arguments)
    kernel = KERNELS[case.kind].warmup(**arguments, grid=(1,))
    code = disassembled(kernel.asm["cubin"])
    registers, stack = map(int, re.search(r"REG:(\d+) STACK:(\d+)", code).groups())
    scores = M * N / 64**2
    return Compiled(registers, stack, kernel.metadata.shared, [round(n * warps / 4 / scores) for n in loops(code)])


def arguments_for(case):
    """As of a call with as many queries as keys, 8 query heads and 4 of keys."""
    kind, tokens, infinite = case.kind, case.tokens, float("inf")
    heads = dict(q=8, k=4, v=4, dout=8)
    tensors = {
        name: torch.empty(1, tokens, count, case.d, dtype=getattr(torch, case.dtype)).transpose(1, 2)
        for name, count in heads.items()
        if name != "dout" or kind != "forward"
    }
    edges = dict(nearest=-infinite if case.edges == "none" else 0, farthest=100 if case.edges == "window" else infinite)
    bounds, offsets = (torch.zeros(9, dtype=torch.int32) if wanted else None for wanted in (case.packed, case.offsets))
    packed = dict(bounds_q=bounds, bounds_k=bounds, offsets=offsets)
    task = KernelArguments(scale=0.125, longest_q=tokens, longest_k=tokens, **packed, **edges)
    numbers, gradient = torch.empty(1, 8, tokens), view(torch.empty_like(tensors["q"]))
    total = torch.empty(1, 8, tokens, case.d)
    more = {
        "forward": dict(out=gradient, lse=numbers),
        "backward": dict(lse=numbers, delta=numbers, scale=0.125, dq=total, dk=gradient, dv=gradient),
        "queries": dict(lse=numbers, delta=numbers, scale=0.125, dq=gradient),
    }
    arguments = arguments_of(kind, task, tensors) | more[kind]
    return arguments if case.tma else arguments | {name: view(x) for name, x in tensors.items()}


def disassembled(cubin):
    """In words: what it needs, and its instructions."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        command = [PROGRAM, "--dump-resource-usage", "--dump-sass", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def loops(code):
    """How many instructions each innermost loop with matmuls has, in the order of the program."""
    lines = [(int(at, 16), name, rest) for at, name, rest in INSTRUCTION.findall(code)]
    jumps = []
    for at, name, rest in lines:
        targets = re.findall(r"0x([0-9a-f]+)", rest) if name.startswith("BRA") else []
        jumps += [(int(to, 16), at) for to in targets[-1:] if int(to, 16) < at]
    inner = [a for a in jumps if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in jumps)]
    bodies = [[name for at, name, _ in lines if start <= at <= stop] for start, stop in sorted(inner)]
    return [len(body) for body in bodies if any("MMA" in name for name in body)]


def table_row(case, found):
    """As the table below prints it: GPU, kernel and so on."""
    queries, keys, warps, stages = case.tile
    return (
        *(f"sm_{case.architecture}", case.kind, case.d, case.dtype, case.edges, f"{queries} x {keys}", warps, stages),
        *(f"{found.shared:,} of {SHARED[case.architecture]:,}", f"{found.registers} of 255", found.stack),
    )


def print_row(*cells):
    widths = 6, 8, 4, 8, 6, 9, 5, 6, 18, 10, 7
    print("  ".join(str(cell).ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip(), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only the first choices: a dozen")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each kernel")
    options = parser.parse_args()
    if options.quick:
        every = itertools.product(SHARED, ("forward", "backward"), (64, 128))
        asked = [next(cases([architecture], [kind], [d], ["causal"])) for architecture, kind, d in every]
    else:
        asked = [*cases(SHARED, KERNELS, (64, 128, 256), ("none", "causal", "window"))]
        causal = [case for case in asked if case.edges == "causal"]
        asked += cases(SHARED, KERNELS, (64, 128, 256), ("causal",), packed=True)
        asked += [case._replace(offsets=True) for case in causal]
        asked += [case._replace(tokens=1) for case in causal if case.d == 64]  # sizes of 1 are constants
        asked += [*cases(SHARED, KERNELS, (64, 128, 256), ("causal",), ("float16",))]
        asked += [*cases(SHARED, KERNELS, (64, 128), ("window",), ("float32",))]
    if not options.json:
        names = (
            "GPU",
            "kernel",
            "d",
            "dtype",
            "edges",
            "tile",
            "warps",
            "stages",
            "bytes shared",
            "registers",
            "spilled",
        )
        print_row(*names)
    with ProcessPoolExecutor() as pool:
        for case, found in zip(asked, pool.map(compiled, asked)):
            if options.json:
                limit = dict(limit=SHARED[case.architecture])
                print(json.dumps(case._asdict() | found._asdict() | limit), flush=True)
            else:
                print_row(*table_row(case, found))
