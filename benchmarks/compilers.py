"""Time of fused kernels that LLVM compiles, beside torch's own and torch.compile's, on one thread.

    .venv-compilers/bin/python benchmarks/compilers.py [--rows 1024] [--columns 1024] [--write]

float32, forward. "torch" is eager: one kernel for each operator, or torch's hand-written one where there is one (GELU,
softmax, layer norm). The fastest of the calls, which take turns: other programs make the others slower. ``first``:
seconds until the first result, with tracing and compiling, nothing kept from before. Bytes are those that operators
read and write, by formula (tests/compilers/test_program.py counts them). Needs llvmlite (``make compilers``), and
torch.compile a C++ compiler. ``--write`` puts the rows where notebook 20 reads them.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks import csv_rows
from tinydist.compilers import Program, capture

FILE = Path(__file__).parents[1] / "notebooks" / "data" / "20_times.csv"
FUNCTIONS = {
    "relu(2 x + b) x + 1": lambda x, b: torch.relu(2 * x + b) * x + 1,
    "tanh(2 x + b) x + 1": lambda x, b: torch.tanh(2 * x + b) * x + 1,
    "the same, tanh by exp": lambda x, b: (1 - 2 / (torch.exp(4 * x + 2 * b) + 1)) * x + 1,
    "GELU(x + b)": lambda x, b: F.gelu(x + b),
    "GELU(x + b), by tanh": lambda x, b: F.gelu(x + b, approximate="tanh"),
    "SiLU(x) (x + b)": lambda x, b: F.silu(x) * (x + b),
    "softmax(x + b)": lambda x, b: torch.softmax(x + b, -1),
    "layer norm(x)": lambda x, b: F.layer_norm(x, b.shape, b, b),
}


def seconds(programs, inputs, times):
    """{name: (of the first call, the fastest of the others)}"""
    first, samples = {}, {name: [] for name in programs}
    for number in range(times + 1):
        for name, program in programs.items():
            begin = time.perf_counter()
            program(*inputs)
            spent = time.perf_counter() - begin
            if number == 0:
                first[name] = spent
            else:
                samples[name].append(spent)
    return {name: (first[name], min(each)) for name, each in samples.items()}


class Compiled:
    """Captured and compiled by the first call."""

    def __init__(self, function):
        self.function, self.program = function, None

    def __call__(self, *inputs):
        self.program = self.program or Program(capture(self.function, *inputs), backend="llvm")
        return self.program(*inputs)


def row(name, shape, times):
    function, inputs = FUNCTIONS[name], [torch.randn(shape), torch.randn(shape[-1])]
    programs = {"torch": function, "llvm": Compiled(function), "compile": torch.compile(function)}
    found = seconds(programs, inputs, times)
    made = {f"{program}_us": round(1e6 * each) for program, (_, each) in found.items()}
    first = {f"first_{program}_s": f"{each:.2f}" for program, (each, _) in found.items() if program != "torch"}
    program = programs["llvm"].program
    ratios = {f"llvm_over_{other}": f"{found['llvm'][1] / found[other][1]:.2f}" for other in ("torch", "compile")}
    error = (program(*inputs) - function(*(each.double() for each in inputs))).abs().max().item()
    sizes = {"rows": shape[0], "columns": shape[1], "bytes": program.moved, "launches": program.launches}
    return {"function": name} | sizes | made | ratios | first | {"largest_error": f"{error:.1e}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--columns", type=int, default=1024)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    os.environ |= {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "TORCHINDUCTOR_CACHE_DIR": tempfile.mkdtemp()}
    torch.set_num_threads(1)
    torch.manual_seed(0)
    where, found = csv_rows.measured_on("torch", "llvmlite"), []
    for name in FUNCTIONS:
        found.append(row(name, (chosen.rows, chosen.columns), chosen.times) | where)
        line = "{function:22} torch {torch_us:6} us  llvm {llvm_us:6} us  torch.compile {compile_us:6} us"
        print(
            (line + "  llvm/torch {llvm_over_torch}  llvm/compile {llvm_over_compile}").format(**found[-1]), flush=True
        )
    if chosen.write:
        csv_rows.write(FILE, found)


if __name__ == "__main__":
    main()
