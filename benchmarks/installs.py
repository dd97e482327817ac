"""What a tool brings along: packages and bytes to download, by locks that uv makes. Nothing is downloaded.

    PATH=BIN:$PATH python -m benchmarks.installs [--write]    # --write: into notebooks/data/22_locks, for notebook 22

BIN has uv. For each name in ASKED, an empty project asks for it alone (or for two), and uv picks the newest versions
that go together. A package without a wheel for the machine counts with its source.
"""

import argparse
import os
import sys
import tempfile
import tomllib

from benchmarks import csv_rows
from benchmarks.lock_files import MACHINES, download, installed
from benchmarks.locks import COMMANDS, FOLDER, run, version_of

TORCH = "torch==2.13.0"
LINUX = "Linux, x86-64"
ASKED = {
    "environment": ["uv", "poetry", "conda-lock"],
    "data": ["webdataset", "datasets"],
    "training": [
        TORCH,
        "torch==2.15.0",
        "accelerate",
        "transformers",
        "lightning",
        "deepspeed",
        "torchtitan",
        "megatron-core",
    ],
    "launch": ["ray"],
    "evaluation": ["lm-eval"],
    "quantization": ["torchao"],
    "serving": ["vllm", "sglang"],
    "application": ["langchain-openai", "llama-index"],
    "two in one environment": [f"vllm {TORCH}", "vllm torch==2.15.0"],
}
REFUSED = "vllm>=0.30 torch==2.15.0"


def needed(asked, cache, python):
    """By machine: rows, one a package."""
    folder, *_ = run(COMMANDS["uv"], cache, asked.split(), f"=={python.rpartition('.')[0]}.*")
    lock = tomllib.loads((folder / "uv.lock").read_text())
    found = {}
    for machine in MACHINES if asked == TORCH else [LINUX]:
        of = installed(lock, machine, python)
        sizes = {name: download(package, machine, python)["size"] for name, package in of.items()}
        found[machine] = [{"package": name, "version": of[name]["version"], "bytes": sizes[name]} for name in of]
    return found


def summed(stage, asked, rows):
    """One row of them."""
    versions = {row["package"]: row["version"] for row in rows}
    first = asked.split()[0].partition("==")[0]
    counts = {"packages": len(rows), "bytes": sum(row["bytes"] for row in rows)}
    return {"stage": stage, "asked": asked, "version": versions[first], "torch": versions.get("torch", "")} | counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    about, python = version_of("uv"), ".".join(map(str, sys.version_info[:3]))
    about = {"resolved_by": about["version"], "date": about["date"]}
    sums, torch = [], []
    with tempfile.TemporaryDirectory() as tempfile.tempdir:
        cache = os.path.join(tempfile.tempdir, "cache")
        for stage, names in ASKED.items():
            for asked in names:
                by_machine = needed(asked, cache, python)
                sums.append(summed(stage, asked, by_machine[LINUX]) | about)
                print(sums[-1])
                if asked == TORCH:
                    torch = [{"platform": each} | row | about for each, rows in by_machine.items() for row in rows]
        run(COMMANDS["uv"], cache, REFUSED.split(), f"=={python.rpartition('.')[0]}.*", fails=True)
        sums.append(dict.fromkeys(sums[-1], "") | {"stage": stage, "asked": REFUSED, "version": "no answer"} | about)
    if chosen.write:
        csv_rows.write(FOLDER / "torch.csv", torch)
        csv_rows.write(FOLDER / "installs.csv", sums)


if __name__ == "__main__":
    main()
