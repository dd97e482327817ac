"""Decoding from blocks: one token through four layers of 8192 x 8192, in fp32, bf16, Q8_0 and Q4_0.

    python benchmarks/block_decoding.py [--size 8192] [--layers 4] [--rounds 15] [--threads 1 2] [--write | --append]

On one thread and on two; runs differ by more than their rounds, so others can be appended (``run`` counts them). The
smallest format has 151 MB, more than four times the last-level cache of the processor that it was run on (32 MiB), so
each token reads all weights from memory. Formats take turns in each round, and the fastest round of each counts, since
other programs ran on the machine. On one thread ``cpu_ms`` counts as well: the time that the processor gave to this
process, which others lengthen only by taking memory bandwidth. Needs llvmlite.
Controls, by the same clocks:

    read     the same bytes, added up as numbers of 8 bytes and used for nothing
    cached   as many products, of 4 MiB of weights that stay in the cache: unpacking and multiplying, more calls
    rest     a product of each layer's first row: rounding x, Python, handing out rows

``--write`` puts the table where notebook 21 reads it, ``--append`` adds to it.
"""

import argparse
import os
import time
from pathlib import Path

# Else a thread of torch's OpenMP, which spins after bf16's product, holds a core that the next format needs
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
import torch
import torch.nn.functional as F

from benchmarks import csv_rows
from tinydist.quantization import Blocks, quantize
from tinydist.quantization.matvec import matvec

FILE = Path(__file__).parents[1] / "notebooks" / "data" / "21_decoding.csv"
IN_CACHE = 2**22  # bytes


def layers_of(weight, count):
    """{format: ``count`` copies of the weight}, each in its own memory."""
    formats = {"fp32": weight, "bf16": weight.bfloat16()}
    found = {name: [each.clone() for _ in range(count)] for name, each in formats.items()}
    for name in ("Q8_0", "Q4_0"):
        blocks = quantize(weight, name)
        found[name] = [Blocks(blocks.data.clone(), blocks.format) for _ in range(count)]
    return found


def product(x, weight):
    if isinstance(weight, Blocks):
        return matvec(x, weight)
    return F.linear(x.to(weight.dtype), weight).float()


def token(layers, x):
    for weight in layers:
        x = product(x, weight)
        x = x / x.norm()
    return x


def rows_of(weight, count):
    return Blocks(weight.data[:count], weight.format) if isinstance(weight, Blocks) else weight[:count]


def read(layers):
    for weight in layers:
        data = weight.data if isinstance(weight, Blocks) else weight
        data.view(torch.int64).sum()


def cached(layers, x):
    count = IN_CACHE * len(layers[0].data) // layers[0].nbytes  # rows
    few = rows_of(layers[0], count)
    for _ in range(sum(len(weight.data) for weight in layers) // count):
        product(x, few)


def rest(layers, x):
    for weight in layers:
        x = product(x, rows_of(weight, 1)).expand(len(x))
        x = x / x.norm()


def seconds(call, *inputs):
    begin, cpu_begin = time.perf_counter(), time.process_time()
    call(*inputs)
    return time.perf_counter() - begin, time.process_time() - cpu_begin


def measured(formats, x, rounds):
    """{(format, what): least seconds of all rounds, by the clock and of the processor}"""
    found = {}
    for _ in range(rounds + 1):  # the first compiles and warms up
        for name, layers in formats.items():
            found.setdefault((name, "token"), []).append(seconds(token, layers, x))
            found.setdefault((name, "read"), []).append(seconds(read, layers))
            found.setdefault((name, "cached"), []).append(seconds(cached, layers, x))
            found.setdefault((name, "rest"), []).append(seconds(rest, layers, x))
    return {key: [min(times) for times in zip(*rounds[1:])] for key, rounds in found.items()}


def started(description, file):
    """Options, earlier rows of ``file`` if they stay, the number of this run, x, and the layers in each format."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--append", action="store_true", help="write, and keep earlier runs")
    chosen = parser.parse_args()
    before = csv_rows.read(file) if chosen.append else []
    run = 1 + max((int(row["run"]) for row in before), default=0)
    torch.manual_seed(0)
    x, weight = torch.randn(chosen.size), torch.randn(chosen.size, chosen.size)
    return chosen, before, run, x, layers_of(weight, chosen.layers)


def main():
    chosen, before, run, x, formats = started(__doc__, FILE)
    found = []
    for threads in chosen.threads:
        torch.set_num_threads(threads)
        where = {"load": f"{os.getloadavg()[0]:.0f}", **csv_rows.measured_on("torch", "llvmlite")}
        for (name, what), (wall, cpu) in measured(formats, x, chosen.rounds).items():
            nbytes = sum(weight.nbytes for weight in formats[name])
            row = {"run": run, "format": name, "threads": threads, "what": what, "bytes": nbytes}
            found.append(row | {"ms": f"{1e3 * wall:.2f}", "cpu_ms": f"{1e3 * cpu:.2f}"} | where)
            print("{format:5} {threads} threads  {what:7} {ms:>9} ms, of the processor {cpu_ms:>9}".format(**found[-1]))
    if chosen.write or chosen.append:
        csv_rows.write(FILE, before + found)


if __name__ == "__main__":
    main()
