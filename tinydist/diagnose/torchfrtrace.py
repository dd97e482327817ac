"""Runs PyTorch's ``torchfrtrace`` on the records of gloo, which torch 2.13's cannot read as they are.

It raises a KeyError: the list of groups in a record of gloo leaves out the group's name, to which the calls refer. Here
the list is filled in from the calls, in copies, and nothing else is changed. It compares the ranks with the one whose
file it reads first, in the order in which the folder happens to list them (``read_dir`` in
torch/distributed/flight_recorder/components/loader.py); here ``first`` decides.
"""

import pickle
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]

# The files in a given order; the rest is torch's.
IN_ORDER = """\
import os, sys
walk, names = os.walk, sys.argv.pop().split("/")
os.walk = lambda *folder: ((root, [], names) for root, _, _ in walk(*folder))
from torch.distributed.flight_recorder.fr_trace import main
main()
"""


def torchfrtrace(folder, first=0):
    """What it says of the records in ``folder``, rank_0 and so on, by line; ``first``: the rank that it reads first."""
    paths = sorted(Path(folder).iterdir(), key=lambda path: (rank_of(path) != first, rank_of(path)))
    records = {path: pickle.loads(path.read_bytes()) for path in paths}
    groups = groups_in(records)
    with tempfile.TemporaryDirectory() as copies:
        for path, record in records.items():
            Path(copies, path.name).write_bytes(pickle.dumps(record | {"pg_config": groups}))
        command = [sys.executable, "-c", IN_ORDER, copies, "/".join(path.name for path in paths)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()


def first_report(folder, first=0):
    """Its report of the first call that does not fit, by line. Files are without their folders, culprits (whose order
    it leaves open) have a line each, and of the stack only the program's lines are left, not torch's and tinydist's."""
    report = []
    for line in torchfrtrace(folder, first):
        if line.startswith(("Not all ranks", "Collective sequence")) and report:
            break
        frame = re.fullmatch(r"\s*(\S+) at (.*?)([^/\\]*:\d+)", line)
        if frame and frame[2].startswith(str(PACKAGE)):
            break  # what has called the program
        if frame and "/torch/" not in frame[2]:
            report.append(f"{frame[1]} at {frame[3]}")
        elif not frame and "tabulate" not in line:  # a library that it can do without
            words, *culprits = re.split(", (?=Culprit)|(?<=: )(?=Culprit)", line)
            report += [words.rstrip(), *sorted(culprits)]
    return report


def rank_of(path):
    return int(re.search(r"\d+$", path.name)[0])


def groups_in(records):
    """As a record of nccl lists them: the members of a group are those who have called in it."""
    members = defaultdict(set)
    for path, record in records.items():
        for entry in record["entries"]:
            members[tuple(entry["process_group"])].add(rank_of(path))
    return {name: {"name": name, "desc": desc, "ranks": str(sorted(ranks))} for (name, desc), ranks in members.items()}
