"""The two ways to start: ``launch`` from a caller whose functions no process can import, and under torchrun."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import tinydist

ROOT = Path(__file__).resolve().parents[1]


def told(device):
    """What a rank sees of itself and the others."""
    x = torch.full((1000,), float(dist.get_rank()), device=device)
    dist.all_reduce(x)
    dist.barrier()
    return {"rank": dist.get_rank(), "device": str(x.device), "sum": x[0].item()}


def check(results, machine):
    expected = sum(range(machine.ranks))
    devices = [f"cuda:{rank}" for rank in range(machine.ranks)] if machine.device == "cuda" else ["cpu"] * machine.ranks
    wrong = [each for each, device in zip(results, devices) if each["sum"] != expected or each["device"] != device]
    if len(results) != machine.ranks or wrong:
        raise AssertionError(f"expected a sum of {expected} on each of {', '.join(devices)}, got {results}")


def from_a_notebook(machine):
    in_a_cell = {"told": told}
    exec("def program(device):\n    return told(device)", in_a_cell)  # as in a notebook: it has no module to import
    rows = []
    for call in ("first", "second"):
        began = time.perf_counter()
        run = machine.launch(in_a_cell["program"], machine.device)
        rows.append({"call": call, "seconds": time.perf_counter() - began})
        check(run.results, machine)
    return rows


def under_torchrun(machine):
    """In each process ``launch`` joins the job (backend "simulated" becomes nccl or gloo there)."""
    program = [str(Path(__file__)), machine.device, "nccl" if machine.device == "cuda" else "gloo"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={machine.ranks}"]
    began = time.perf_counter()
    job = subprocess.run(command + program, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300)
    if job.returncode:
        raise RuntimeError(f"torchrun ended with {job.returncode}:\n{job.stderr[-4000:]}")
    said = [json.loads(line) for line in job.stdout.splitlines() if line.startswith("[{")]
    for results in said:
        check(results, machine)
    if len(said) != machine.ranks:
        raise AssertionError(f"{machine.ranks} processes, but {len(said)} reported")
    return [{"call": "torchrun", "seconds": time.perf_counter() - began}]


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    print(json.dumps(tinydist.launch(told, 1, sys.argv[1], backend=sys.argv[2]).results), flush=True)
