"""Our products over blocks beside those of ggml, the library under llama.cpp.

    python benchmarks/beside_ggml.py [--size 8192] [--layers 4] [--rounds 15] [--threads 1 2] [--write | --append]

A token through four layers of 8192 x 8192, which no cache holds (``block_decoding.py``), with the same weights and
the same x for both, in one process. They take turns in each round, and the fastest round of each counts, by the clock
and by the time that the processor gave to this process. llama.cpp interleaves rows of Q4_0 when it loads a model
("repacked"), so both ways are measured. Needs llama-cpp-python and llvmlite. ``--write`` puts the table where notebook
21 reads it, ``--append`` adds a run to it.
"""

import os
from functools import partial
from pathlib import Path

from benchmarks import block_decoding, csv_rows  # block_decoding first: it sets how OpenMP waits
from benchmarks.ggml import Chain

# isort: split
import torch
import torch.nn.functional as F

FILE = Path(__file__).parents[1] / "notebooks" / "data" / "21_ggml.csv"


def calls_of(formats, x, threads):
    """{(format, whose): a token}"""
    for name, layers in formats.items():
        yield (name, "ours"), partial(block_decoding.token, layers, x)
        yield (name, "ggml"), partial(Chain(layers, threads), x)
    yield ("Q4_0", "ggml, repacked"), partial(Chain(formats["Q4_0"], threads, repack=True), x)


def measured(calls, rounds):
    """{(format, whose): least seconds of all rounds, by the clock and of the processor}"""
    found = {key: [] for key in calls}
    for _ in range(rounds + 1):  # the first compiles and warms up
        for key, call in calls.items():
            found[key].append(block_decoding.seconds(call))
    return {key: [min(times) for times in zip(*rounds[1:])] for key, rounds in found.items()}


def check(calls):
    """Both compute the same, but for codes of x that are rounded the other way: each layer rounds the last one's x."""
    for (name, whose), call in calls.items():
        ours, theirs = calls[name, "ours"](), call()
        difference = 1 - F.cosine_similarity(ours, theirs, dim=0).item()
        assert difference < 1e-3, f"{name}, {whose}: {difference}"


def main():
    chosen, before, run, x, formats = block_decoding.started(__doc__, FILE)
    found = []
    for threads in chosen.threads:
        torch.set_num_threads(threads)
        calls = dict(calls_of(formats, x, threads))
        check(calls)
        where = {"load": f"{os.getloadavg()[0]:.0f}", **csv_rows.measured_on("torch", "llvmlite", "llama_cpp_python")}
        for (name, whose), (wall, cpu) in measured(calls, chosen.rounds).items():
            nbytes = sum(weight.nbytes for weight in formats[name])
            row = {"run": run, "format": name, "threads": threads, "whose": whose, "bytes": nbytes}
            found.append(row | {"ms": f"{1e3 * wall:.2f}", "cpu_ms": f"{1e3 * cpu:.2f}"} | where)
            print(
                "{format:5} {threads} threads  {whose:15} {ms:>9} ms, of the processor {cpu_ms:>9}".format(**found[-1])
            )
    if chosen.write or chosen.append:
        csv_rows.write(FILE, before + found)


if __name__ == "__main__":
    main()
