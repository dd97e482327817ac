"""The product over blocks with x in 8 and in 16 bits: what the bytes of x cost while weights stream by.

    python benchmarks/size_of_x.py [--rounds 60] [--write]

Nanoseconds of the processor for a block of 32 weights, on one thread: the fastest of all rounds, in which variants
take turns. Weights come from memory (151 MB in Q4_0, 285 MB in Q8_0), from the L3 cache (8 MiB) or from L2 (0.5 MiB).
The control is the length of a row: the same bytes in shorter rows need fewer numbers of x, so both kernels meet an x of
the same size. The processor that this was run on has 32 KiB of L1, 1 MiB of L2 and 32 MiB of L3. Needs llvmlite.
``--write`` puts the table where notebook 21 reads it.
"""

import argparse
import time
from pathlib import Path

import torch

from benchmarks import csv_rows
from tinydist.quantization import FORMATS, quantize
from tinydist.quantization.matvec import compiled_kernel, source_of

FILE = Path(__file__).parents[1] / "notebooks" / "data" / "21_size_of_x.csv"
PLACES = {"memory": None, "L3": 2**23, "L2": 2**19}  # bytes of weights
LENGTHS = 2048, 4096, 8192, 16384
WIDER = {
    "%x.offset = mul i64 %b, 32": "%x.offset = mul i64 %b, 64",
    "ptr %x.low, i64 16": "ptr %x.low, i64 32",
    "load <16 x i8>, ptr %x": "load <16 x i16>, ptr %x",
    "sext <16 x i8> %low.x": "sext <16 x i16> %low.x",
    "sext <16 x i8> %high.x": "sext <16 x i16> %high.x",
}


def kernel(format, bits):
    source = source_of(format)
    for narrow, wide in WIDER.items():
        assert narrow in source
        source = source.replace(narrow, wide) if bits == 16 else source
    return compiled_kernel(source)


def seconds_a_block(call, data, x, scales, times):
    y = torch.empty(len(data))
    pointers = [each.data_ptr() for each in (data, x, scales, y)]
    begin = time.process_time()
    for _ in range(times):
        call(*pointers, len(data), len(scales))
    return (time.process_time() - begin) / (times * len(data) * len(scales))


def measured(rounds):
    """{(format, numbers of a row, bits of x, where weights are): least seconds of a block}"""
    found = {}
    weights = {name: quantize(torch.randn(4096, 2048), name).data.repeat(32, 1) for name in ("Q8_0", "Q4_0")}
    kernels = {(name, bits): kernel(FORMATS[name], bits) for name in weights for bits in (8, 16)}
    for _ in range(rounds):
        for (name, bits), call in kernels.items():
            for numbers in LENGTHS:
                data = weights[name].view(-1, numbers // 32 * FORMATS[name].nbytes)
                x = torch.randint(-127, 128, (numbers,), dtype=torch.int8 if bits == 8 else torch.int16)
                for where, nbytes in PLACES.items():
                    rows, times = (data[: nbytes // data.shape[1]], 2**25 // nbytes) if nbytes else (data, 1)
                    spent = seconds_a_block(call, rows, x, torch.ones(numbers // 32), times)
                    key = name, numbers, bits, where
                    found[key] = min(found.get(key, spent), spent)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = []
    for (name, numbers, bits, where), seconds in measured(chosen.rounds).items():
        row = {"format": name, "row": numbers, "x_bits": bits, "x_bytes": numbers * bits // 8, "weights": where}
        rows.append(row | {"ns_a_block": f"{1e9 * seconds:.2f}"} | csv_rows.measured_on("torch", "llvmlite"))
        print("{format} rows of {row}  x of {x_bytes:6} bytes  {weights:6} {ns_a_block} ns".format(**rows[-1]))
    if chosen.write:
        csv_rows.write(FILE, rows)


if __name__ == "__main__":
    main()
