"""A trace as torch.profiler writes it on GPUs, a file for each rank: Holistic Trace Analysis and other tools read it.

    kernel           an operator or a collective on its stream of the GPU; collectives are named as NCCL's kernels
    cuda_runtime     its launch by the CPU, with the same "correlation"
    distributedInfo  rank and world_size, by which a tool knows the files of one run

Tools tell computation from communication by names: "nccl" is communication, "Memcpy" is a copy.
"""

import json
from pathlib import Path

GIGA, KILO = 1e9, 1e3  # the format counts microseconds, and its readers whole nanoseconds
CPU, GPU, COMPUTE_STREAM = 1, 0, 7
LAUNCH = 1.0  # microseconds that a launch is drawn with: the trace knows when it was, not how long
COPIES = {"to device": "Memcpy HtoD (Pageable -> Device)", "to host": "Memcpy DtoH (Device -> Pageable)"}


def save_by_rank(trace, folder):
    """Write ``rank0.json`` and so on; returns the paths. Ranks that did not run have none."""
    folder, paths = Path(folder), []
    folder.mkdir(parents=True, exist_ok=True)
    for rank, held in enumerate(trace.memory):
        if not held.is_idle:
            paths.append(folder / f"rank{rank}.json")
            paths[-1].write_text(json.dumps(trace_of_rank(trace, rank)))
    return paths


def trace_of_rank(trace, rank):
    world = len(trace.memory)
    return {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
        "displayTimeUnit": "ns",
        "traceEvents": list(entries(trace, rank)),
    }


def entries(trace, rank):
    streams = {"compute": COMPUTE_STREAM}
    for number, event in enumerate(trace.of(rank), 1):
        if event.name == "wait" or round(event.end * GIGA) <= round(event.start * GIGA):
            continue
        stream = streams.setdefault(event.stream, COMPUTE_STREAM + len(streams))
        start, end = round(event.start * GIGA), round(event.end * GIGA)
        issued = start if event.issued is None else min(start, round(event.issued * GIGA))
        same = {"External id": number, "correlation": number}
        yield complete("cuda_runtime", "cudaLaunchKernel", issued / KILO, LAUNCH, CPU, CPU, same)
        about = {**same, "device": GPU, "stream": stream, **of_collective(event)}
        yield complete("kernel", kernel_name(event), start / KILO, (end - start) / KILO, GPU, stream, about)


def complete(category, name, at, took, process, thread, about):
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": at,
        "dur": took,
        "pid": process,
        "tid": thread,
        "args": about,
    }


def kernel_name(event):
    if event.transfer is not None:
        return f"ncclDevKernel_{event.name}"
    return COPIES.get(event.name, event.name)


def of_collective(event):
    if event.transfer is None:
        return {}
    return {"Collective name": event.name, "Group size": len(event.transfer.ranks)}
