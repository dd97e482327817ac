"""Exports one step: timeline, memory and traffic of simulated ranks; torch.profiler's traces of real ones.

    timeline.png   who computed, communicated and waited, and when
    trace.json     the same, for ui.perfetto.dev
    memory.png     what the fullest rank held, and for what
    traffic.png    who sent how many bytes to whom

    rank-0.json    of real ranks: a file each, for ui.perfetto.dev

Pictures are what a notebook shows of a run.
"""

import base64
from pathlib import Path

import torch
import torch.distributed as dist

from ..plan import DTYPES


def write_simulated(run, folder):
    """Of the last step of an observed ``Run``, which is returned."""
    step = run.between(("step", -1))
    write_run(step, new(folder))
    return step


def write_run(run, folder):
    for name, shown in {"timeline": run, "memory": run.memory, "traffic": run.traffic}.items():
        picture = shown._repr_mimebundle_()  # None: there is nothing to be seen
        if picture:
            (folder / f"{name}.png").write_bytes(base64.b64decode(picture[0]["image/png"]))
    run.trace.save(folder / "trace.json")


def summary(step, plan, batches, flops):
    """Of a step on its cluster, in virtual time."""
    rate, device = batches.batch * batches.context / step.seconds, step.cluster.device
    used = rate * flops / (plan.ranks * device.peak_of(DTYPES[plan.precision]))
    return f"a step takes {1e3 * step.seconds:.3g} ms on {step.cluster}: {rate:,.0f} tokens/s, MFU {used:.2%}"


def profiled(folder, do):
    """``do()`` on this rank, under torch.profiler."""
    path = new(folder) / f"rank-{dist.get_rank()}.json"
    with torch.profiler.profile() as profile:
        do()
    profile.export_chrome_trace(str(path))


def new(folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
