"""python -m gpu [FOLDER]: runs every part on this machine's GPUs; report.md and report.json go to FOLDER.

--device cpu runs the same on processors, on tiny sizes, to try the parts themselves.
"""

import argparse
import sys
from pathlib import Path

import torch

from tinydist.hardware import DEVICES, Cluster
from tinydist.hardware.cluster import LAPTOP
from tinydist.hardware.links import NVSWITCH_H100
from tinydist.model import GPTConfig

from .parts import PARTS, Machine, outcome_of
from .report import as_json, as_markdown

TINY = GPTConfig(vocab_size=32, context=8, layers=2, heads=2, dim=16)
SMALL = GPTConfig(vocab_size=50304, context=1024, layers=12, heads=12, dim=768)  # GPT-2's smallest


def main():
    parser = argparse.ArgumentParser(prog="python -m gpu", description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default="build/gpu", type=Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--backend", choices=["simulated", "gloo"], default="simulated", help="with --device cpu")
    parser.add_argument("--ranks", type=int, default=2, help="with --device cpu")
    asked = parser.parse_args()
    if asked.device == "cuda" and not torch.cuda.is_available():
        print("No GPU is here. On a machine with one, this would run:")
        print("\n".join(f"  {name}" + f" (on {least} or more)" * (least > 1) for name, (least, _) in PARTS.items()))
        return 0
    machine = on_gpus() if asked.device == "cuda" else on_processors(asked.backend, asked.ranks)
    return run(machine, asked.folder)


def on_gpus():
    return Machine("cuda", "nccl", torch.cuda.device_count(), cluster_of_gpus(), SMALL)


def on_processors(backend, ranks):
    return Machine("cpu", backend, ranks, LAPTOP, TINY, rows=2, steps=2, lengths=(64,))


def cluster_of_gpus():
    """A node of what the catalogue has that is most like this GPU: by its name, and then by its memory."""
    gpu = torch.cuda.get_device_properties(0)
    named = [each for each in DEVICES.values() if each.name.split()[0] in gpu.name]
    device = min(named or DEVICES.values(), key=lambda each: abs(each.memory - gpu.total_memory))
    return Cluster(device, torch.cuda.device_count(), NVSWITCH_H100)


def run(machine, folder):
    """Every part; 1 if any has failed, else 0."""
    outcomes = []
    for name in PARTS:
        print(f"{name} ... ", end="", flush=True)
        outcomes.append(outcome_of(name, machine))
        print(outcomes[-1].state, flush=True)
    about = {
        "device": torch.cuda.get_device_name() if machine.device == "cuda" else "processor",
        "ranks": f"{machine.ranks}, backend {machine.backend}",
        "torch": torch.__version__,
        "the clock takes it for": str(machine.cluster),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("report.md", as_markdown), ("report.json", as_json)):
        (folder / name).write_text(text(about, outcomes))
    print(f"The report is in {folder / 'report.md'}")
    return int(any(outcome.state == "failed" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
