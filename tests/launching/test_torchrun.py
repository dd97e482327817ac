"""The same script alone and under torchrun."""

import runpy
import subprocess
import sys

import torch

SCRIPT = """
import sys, torch, torch.distributed as dist, tinydist

def add():
    x = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(x)
    return x.item()

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")  # at once: the other rank writes to the same pipe

hook = sys.excepthook
for _ in range(5):
    tinydist.launch(add, ranks=3, cluster="laptop", schedule="shuffle")
run = tinydist.launch(add, ranks=3, timeout=77)
say(f"RESULT {run.backend} {run.results} {sys.excepthook is hook}")

def limit():
    return dist.group.WORLD._get_backend(torch.device("cpu")).options._timeout.total_seconds()

def fail():
    raise KeyError

if run.backend != "simulated":
    say("LIMIT", tinydist.launch(limit, timeout=77).results)
    try:
        tinydist.launch(limit, backend="gloo", fake=True)
    except ValueError as error:
        say("REFUSED", error)
    try:
        tinydist.launch(fail, init=False)
    except KeyError as error:
        say("FAILED", error.__notes__)
"""


def test_one_script_serves_a_laptop_and_torchrun(tmp_path, capfd):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    runpy.run_path(str(script), run_name="__main__")
    assert capfd.readouterr().out.split("RESULT ")[1:] == ["simulated [6.0, 6.0, 6.0] True\n"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    joined = subprocess.run(torchrun, capture_output=True, text=True, timeout=120)
    assert joined.returncode == 0, joined.stdout + joined.stderr
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    for line in (
        f"RESULT {backend} [3.0, 3.0] True",  # True: sys.excepthook is not wrapped once more by each launch
        "LIMIT [77.0, 77.0]",
        "REFUSED launch: fake: supported on simulated ranks only, got backend='gloo'",
    ):
        assert joined.stdout.count(line) == 2, joined.stdout + joined.stderr
    assert [f"FAILED ['on rank {rank} of 2']" in joined.stdout for rank in range(2)] == [True, True]
