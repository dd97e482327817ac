"""What becomes of a kernel on a GPU that is not here: registers, shared memory, the instructions of its loops.

    python -m tinydist.attention.kernels.compiled 90 forward 128 bfloat16

Triton compiles for any architecture; its disassembler tells what came out. A register that does not fit is spilled to the
stack, in slow memory. Shared memory that does not fit is an error when the kernel starts.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from .configs import SHARED
from .launch import KERNELS, Task, arguments_of, choices, descriptor, prepare, view

PROGRAM = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?(\S+)\s*(.*?);", re.M)


class Absent(NamedTuple):
    """A device that is not here, for Triton to compile for."""

    architecture: int

    def get_current_device(self):
        return self.architecture

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", self.architecture, 32)


class Compiled(NamedTuple):
    registers: int  # of a thread
    stack: int  # bytes of a thread: what was spilled
    shared: int  # bytes of a program
    slots: list  # issue slots of each loop with products, for 64 x 64 scores and one of the four schedulers


def compiled(architecture, kind, config, d, dtype, *, e=None, right=True, left=False, packed=False, tma=True):
    """``config`` = (queries, keys, warps, stages). tma: where the architecture has it."""
    driver.set_active(Absent(architecture))
    arguments = arguments_for(kind, d, e or d, dtype, right, left, packed, tma)
    M, N, warps, stages = config
    arguments |= dict(M=M, N=N, num_warps=warps, num_stages=stages, enable_fp_fusion=True)
    prepare(arguments)
    kernel = KERNELS[kind].warmup(**arguments, grid=(1,))
    resources, code = disassembled(kernel.asm["cubin"])
    registers, stack = map(int, re.search(r"REG:(\d+) STACK:(\d+)", resources).groups())
    scores = M * N / 64**2
    return Compiled(registers, stack, kernel.metadata.shared, [round(n * warps / 4 / scores) for n in loops(code)])


def arguments_for(kind, d, e, dtype, right, left, packed, tma):
    """As of a call with as many queries as keys, 8 query heads and 4 of keys."""
    q, k, v, dout = (torch.empty(1, 512, heads, dim, dtype=dtype).transpose(1, 2) for heads, dim in ((8, d), (4, d), (4, e), (8, e)))
    tensors = dict(q=q, k=k, v=v) | ({} if kind == "forward" else dict(dout=dout))
    bounds = torch.zeros(9, dtype=torch.int32) if packed else None
    edges = dict(nearest=0 if right else -float("inf"), farthest=100 if left else float("inf"))
    task = Task(scale=0.125, longest_q=512, longest_k=512, bounds_q=bounds, bounds_k=bounds, **edges)
    numbers, total, dk, dv = torch.empty(1, 8, 512), torch.empty(q.shape), torch.empty_like(q), torch.empty_like(dout)
    known = dict(lse=numbers, delta=numbers, scale=0.125)
    more = {
        "forward": dict(out=view(dout), lse=numbers),
        "backward": known | dict(dq=total, dk=view(dk), dv=view(dv)),
        "queries": known | dict(dq=view(q)),
    }
    arguments = arguments_of(kind, task, tensors) | more[kind]
    return arguments if tma else arguments | {name: view(x) for name, x in tensors.items()}


def disassembled(cubin):
    """What it needs, and its instructions."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        told = (subprocess.run([PROGRAM, each, file.name], capture_output=True, text=True, check=True).stdout
                for each in ("--dump-resource-usage", "--dump-sass"))  # fmt: skip
        return tuple(told)


def loops(code):
    """How many instructions each innermost loop has that makes products, in the order of the program."""
    lines = [(int(at, 16), name, rest) for at, name, rest in INSTRUCTION.findall(code)]
    jumps = [(int(to[-1], 16), at) for at, name, rest in lines
             if name.startswith("BRA") and (to := re.findall(r"0x([0-9a-f]+)", rest)) and int(to[-1], 16) < at]  # fmt: skip
    inner = [a for a in jumps if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in jumps)]
    bodies = [[name for at, name, _ in lines if start <= at <= stop] for start, stop in sorted(inner)]
    return [len(body) for body in bodies if any("MMA" in name for name in body)]
