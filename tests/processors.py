"""`make processors`: notebooks and tests as this machine computes, and as other processors would.

The libraries that compute read variables that keep them from newer instructions, so that one machine shows the last
bits of several. A further run draws random numbers with other last bits (last_bits.py). `--smallest` is what `.ci/run`
adds to `make test`: the fewest instructions and other last bits at once, for notebooks and the tests of long sums.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

import torch
from numpy._core._multiarray_umath import __cpu_dispatch__ as NUMPY

ROOT = Path(__file__).parent.parent
CHAPTERS = ["--nbval", "notebooks", "site/index.ipynb"]
LONG_SUMS = ["tests/serving/test_paged_cache.py", "tests/tensor_parallel/test_shard.py"]
EXERCISES = ["solutions", "exercises"]  # whose checks refuse a torch that has been changed
OPTIONS = ["-q", "--tb=short", "--color=no", "-n", "auto", "--maxprocesses", "4", "--dist", "loadscope"]
OPTIONS += ["--no-loadscope-reorder"]  # notebooks take longest, so they come first
HERE = {}
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": " ".join(name for name in NUMPY if name != "X86_V3"),
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F",
}
SSE42 = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Nehalem",
    "NPY_DISABLE_CPU_FEATURES": " ".join(NUMPY),
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-FMA4",  # for math.exp and others
}
OTHER_LAST_BITS = {"TINYDIST_LAST_BITS": "1"}


def runs():
    """Of each run its name, how many threads, variables, and what pytest is asked for."""
    processors = {f"this one ({torch.backends.cpu.get_cpu_capability()})": HERE}
    if platform.machine() in ("x86_64", "AMD64"):
        processors |= {"AVX2": AVX2, "SSE4.2": SSE42}
    for name, variables in processors.items():
        for threads in (1, 2):
            yield name, threads, variables, [*CHAPTERS, *EXERCISES, "tests"]
    yield "this one, other last bits", 1, OTHER_LAST_BITS, CHAPTERS


def smallest():
    variables = SSE42 if platform.machine() in ("x86_64", "AMD64") else HERE
    yield "the fewest instructions", 1, variables | OTHER_LAST_BITS, [*CHAPTERS, *LONG_SUMS]


def run(name, threads, variables, asked):
    """Whether it passed; a line says so, and lines what failed."""
    log = Path(sys.prefix) / "logs" / f"processors {name}, {threads}.log"
    with open(log, "w") as file:
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)} | variables
        command = [sys.executable, "-m", "pytest", *OPTIONS, *asked]
        status = subprocess.call(command, cwd=ROOT, env=environment, stdout=file, stderr=file)
    lines = log.read_text().splitlines()
    print(f"{name:36}{threads:>8}  {lines[-1]}", flush=True)
    for line in lines:
        if status and line.startswith(("FAILED", "ERROR")):
            print(f"    {line}")
    return status == 0


def main(arguments):
    print(f"{'processor':36}{'threads':>8}  tests and cells")
    passed = [run(*each) for each in (smallest() if "--smallest" in arguments else runs())]
    return 0 if all(passed) else f"Logs are in {Path(sys.prefix) / 'logs'}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
