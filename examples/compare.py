"""The same steps by every system, beside this library's: what each loses, holds, and takes.

    python examples/compare.py [--write]     # --write: into the table of notebook 12, with versions and the date

Every run has two gloo processes. Seconds are those of the machine on which it ran, whatever else it did.
"""

import argparse
import csv
from datetime import date
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from same_step import RANKS

import tinydist

FILE = Path(__file__).parents[1] / "notebooks" / "data" / "12_systems.csv"


class Way(NamedTuple):
    """One of the ways to take the steps."""

    packages: str  # the system's own comes first
    file: str
    options: dict  # of its ``main``
    ours: dict  # of train_tinydist.py's, to do the same
    same: bool = True  # a default of its own makes it another training


DDP, TENSOR = {}, {"tp": 2}
ZERO = [{"zero": stage} for stage in range(4)]
WAYS = {
    "tinydist DDP": Way("tinydist", "train_tinydist", DDP, DDP),
    "tinydist ZeRO 1": Way("tinydist", "train_tinydist", ZERO[1], ZERO[1]),
    "tinydist ZeRO 2": Way("tinydist", "train_tinydist", ZERO[2], ZERO[2]),
    "tinydist ZeRO 3": Way("tinydist", "train_tinydist", ZERO[3], ZERO[3]),
    "tinydist tensor parallel": Way("tinydist", "train_tinydist", TENSOR, TENSOR),
    "DDP": Way("torch", "train_ddp", {}, DDP),
    "DDP, gradients as views": Way("torch", "train_ddp", {"views": True}, DDP),
    "FSDP2": Way("torch", "train_fsdp2", {}, ZERO[3]),
    "FSDP2, parameters kept": Way("torch", "train_fsdp2", {"keep": True}, ZERO[2]),
    "Accelerate": Way("accelerate", "train_accelerate", {}, DDP),
    "Accelerate, FSDP plugin": Way("accelerate", "train_accelerate", {"way": "fsdp"}, DDP),
    "Accelerate, DeepSpeed plugin": Way(
        "accelerate deepspeed transformers", "train_accelerate", {"way": "deepspeed"}, ZERO[2]
    ),
    "DeepSpeed ZeRO 1": Way("deepspeed", "train_deepspeed", {"stage": 1}, ZERO[1]),
    "DeepSpeed ZeRO 2": Way("deepspeed", "train_deepspeed", {"stage": 2}, ZERO[2]),
    "DeepSpeed ZeRO 3": Way("deepspeed", "train_deepspeed", {"stage": 3}, ZERO[3]),
    "DeepSpeed ZeRO 3, its own defaults": Way(
        "deepspeed", "train_deepspeed", {"stage": 3, "defaults": True}, ZERO[3], same=False
    ),
    "Megatron-core tensor parallel": Way("megatron-core", "train_megatron", {}, TENSOR),
}


def installed(name):
    return all(find_spec(package.removesuffix("-core")) for package in WAYS[name].packages.split())


def found(name, backend="gloo", **options):
    """What rank 0 ``Found``."""
    way = WAYS[name]
    main = partial(import_module(way.file).main, **way.options, **options)
    return tinydist.launch(main, RANKS, backend=backend, init=False, observe=False).results[0]


def measured(name):
    """One row."""
    losses, held, seconds = found(name)
    system = WAYS[name].packages.split()[0]
    return {
        "way": name,
        "version": f"{system} {version(system)}",
        "date": date.today().isoformat(),
        "held": held,
        "seconds": f"{seconds:.4f}",
        "losses": " ".join(f"{loss:.6f}" for loss in losses),
    }


def stored():
    """The rows as they were last written; ``losses`` as numbers."""
    with FILE.open() as file:
        return [row | {"losses": [float(loss) for loss in row["losses"].split()]} for row in csv.DictReader(file)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    rows = []
    for name in WAYS:
        if not installed(name):
            print(f"{name:30} is not installed: make systems")
            continue
        rows.append(measured(name))
        last = rows[-1]["losses"].split()[-1]
        print("{way:30} {version:20} loss {} {held:11,} bytes {seconds} s".format(last, **rows[-1]), flush=True)
    if chosen.write:
        with FILE.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
