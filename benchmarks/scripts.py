"""What `tinydist run` adds to the start of a script: beside `python script.py`, on the processor's seconds.

    python benchmarks/scripts.py [--times 5]

Two scripts: one imports torch and torch.distributed, the other also takes three steps with DDP and AdamW, which load
more of torch. Rounds alternate; medians of user and system time of the process, so that other work on the machine
counts less. Wanted is at most 1.2 times the script alone.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WANTED = 1.2
IMPORTS = "import torch\nimport torch.distributed\n"
STEPS = """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "OMP_NUM_THREADS": "1"}


def seconds(*words):
    """Of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], env=os.environ | ALONE, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def compare(name, script, times):
    run = "-m", "tinydist", "run", "--quiet"
    ways = {"alone": (script,), "1 rank": (*run, script), "8 ranks": (*run, "--nproc-per-node", "8", script)}
    took = {way: [] for way in ways}
    for _ in range(times):
        for way, words in ways.items():
            took[way].append(seconds(*words))
    medians = {way: statistics.median(each) for way, each in took.items()}
    words = ", ".join(f"{way} {each:.2f} s ({each / medians['alone']:.2f})" for way, each in medians.items())
    print(f"{name}: {words}; wanted: {WANTED}")


def main():
    reads = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reads.add_argument("--times", type=int, default=5)
    times = reads.parse_args().times
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in {"imports": IMPORTS, "three steps": IMPORTS + STEPS}.items():
            script = Path(folder) / "script.py"
            script.write_text(lines)
            compare(name, str(script), times)


if __name__ == "__main__":
    main()
