"""What py-spy says of train.py while it hangs: writes notebooks/data/01b_py_spy.csv, a row for each line.

    pip install py-spy psutil
    python notebooks/hang/record.py

Run it as the user who owns the processes; on Linux that may need `sudo`, and in a container the capability
SYS_PTRACE. The lines with paths and numbers of this machine are left out: which Python, and the numbers of processes.
"""

import csv
import re
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import psutil

HERE = Path(__file__).resolve().parent
FILE = HERE.parent / "data" / "01b_py_spy.csv"
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", HERE / "train.py"]


def said_by(*words):
    return subprocess.run(["py-spy", *map(str, words)], check=True, capture_output=True, text=True).stdout


def ranks_of(job):
    """Rank -> its process."""
    return {int(each.environ()["RANK"]): each for each in job.children() if "RANK" in each.environ()}


def stack(process):
    """Of its main thread, as py-spy prints it."""
    dump = said_by("dump", "--pid", process.pid)
    main = re.search(r'^Thread \d+ (\(\w+\): "MainThread"\n(?:    .*\n)+)', dump, re.MULTILINE)
    return ["Thread " + main[1].splitlines()[0], *main[1].splitlines()[1:]]


def main():
    tool = said_by("--version").strip()
    with tempfile.TemporaryDirectory() as folder:
        job = psutil.Popen(LAUNCH, cwd=folder, stdout=subprocess.PIPE, text=True)
        job.stdout.readline()  # rank 0 has logged step 2
        time.sleep(5)
        processes = ranks_of(job)
        stacks = {rank: stack(processes[rank]) for rank in sorted(processes)}
        for process in (job, *processes.values()):
            process.kill()
            process.wait()
    with open(FILE, "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["date", "tool", "rank", "line"])
        for rank, lines in stacks.items():
            rows.writerows([date.today(), tool, rank, line] for line in lines)


if __name__ == "__main__":
    main()
