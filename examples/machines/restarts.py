"""Does a restart by torchrun work? The same small job many times, with and without a store of its own for each life.

    python examples/machines/restarts.py 10                 ten jobs of either kind, and how each ended
    python examples/machines/restarts.py 10 --write         into notebooks/data/12b_restarts.csv, too

Each job has two gloo processes that count steps by all-reduces. In its first life rank 1 ends without a word before
step 6, and torchrun starts both anew, once. A job that has not ended after PATIENCE seconds has hung, and is stopped.
"""

import argparse
import csv
import os
import re
import signal
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import torch

FILE = Path(__file__).parents[2] / "notebooks" / "data" / "12b_restarts.csv"
VARIABLE, PATIENCE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", 60
PROGRAM = """\
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(10):
    if dist.get_rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and step == 6:
        os._exit(1)
    dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
"""


def ending(own_store):
    """One job: "well", "failed" or "hung", and the last error of its processes."""
    words = ["--standalone", "--nproc-per-node=2", "--max-restarts=1", "counts.py"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "counts.py").write_text(PROGRAM)
        job = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *words],
            cwd=folder,
            env=os.environ | {VARIABLE: str(int(own_store)), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            _, errors = job.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            return "hung", ""
    told = re.search(r"Connection (refused|closed by peer|reset by peer)", errors)
    return ("well", "") if job.returncode == 0 else ("failed", told[0] if told else "")


def main():
    asks = argparse.ArgumentParser()
    asks.add_argument("jobs", type=int, help="of either kind")
    asks.add_argument("--write", action="store_true")
    chosen = asks.parse_args()
    rows = []
    for number in range(chosen.jobs):
        for own_store in (1, 0):  # in turn, so that both meet the same machine
            ended, error = ending(own_store)
            rows.append(
                {
                    "torch": torch.__version__.partition("+")[0],
                    "date": date.today().isoformat(),
                    "own_store": own_store,
                    "ended": ended,
                    "error": error,
                }
            )
            print(f"job {number}, {VARIABLE}={own_store}: {ended} {error}", flush=True)
    if chosen.write:
        with FILE.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
