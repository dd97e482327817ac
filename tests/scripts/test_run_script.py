"""``run_script``: the run of a script, its errors, and forecasts in which one rank stands for all."""

import pytest
import torch

import tinydist
from tinydist.scripts.run_script import run_script
from tinydist.scripts.summary import summary

SUMS = """
import sys
import torch
import torch.distributed as dist

dist.init_process_group()
x = torch.full((int(sys.argv[1]),), float(dist.get_rank()))
dist.all_reduce(x)
print("sum", x[0].item())
"""

SAVES = """
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
weight = torch.ones(1000, 1000, device="cuda")
dist.all_reduce(weight)
torch.save({"epoch": 1}, "epoch.pt")
torch.save({"model": [weight]}, "model.pt")
dist.barrier()
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text):
        (tmp_path / "script.py").write_text(text)
        return tmp_path

    return write


def test_the_run_of_a_script(script, capsys):
    script(SUMS)
    run = run_script("--nproc-per-node 3 script.py 1000")
    assert capsys.readouterr().out.splitlines() == [f"[rank {rank}] sum 3.0" for rank in range(3)]
    assert sum(map(sum, run.traffic)) == 2 * 2 * 4000  # 2 (p - 1) n
    first, sent, *_ = summary(run)
    assert first.startswith("3 simulated ranks: ") and "here" not in first
    assert sent == "sent: 16.0 kB by all_reduce"


def test_what_a_script_raises(script):
    script("import torch.distributed as dist\ndist.init_process_group()\nif dist.get_rank(): dist.barrier()\n")
    with pytest.raises(tinydist.DeadlockError, match="ranks 0"):
        run_script(["--nproc-per-node", "2", "script.py"])


def test_an_error_has_the_line_of_the_script(script):
    script("import torch\nx = torch.ones(2)\ny = x + torch.ones(3)\n")
    with pytest.raises(RuntimeError) as raised:
        run_script("--nproc-per-node 2 script.py")
    assert "at script.py, line 3: y = x + torch.ones(3)" in raised.value.__notes__


def test_processes_are_not_recorded(script):
    script(SUMS)
    with pytest.raises(ValueError, match="run_script: --backend gloo starts processes"):
        run_script("--backend gloo --nproc-per-node 2 script.py 1")


def test_one_rank_stands_for_all_in_a_forecast(script):
    folder = script(SAVES)
    run = run_script("--fake --only 0 --nproc-per-node 8 script.py")
    assert sum(run.traffic[0]) == 2 * 7 / 8 * 4e6
    assert [rank for rank in range(8) if not run.memory[rank].is_idle] == [0]
    assert not any("straggler" in line for line in summary(run))
    assert torch.load(folder / "epoch.pt") == {"epoch": 1}
    assert not (folder / "model.pt").exists()
    assert run.replaced["torch.save"] == "no file: what is on a GPU has no data"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--only 0", "run: --only is for a forecast, --fake, got '0'"),
        ("--fake --only all", "run: --only must be ranks separated by commas, such as 0 or 0,8, got 'all'"),
        ("--fake --only 2", "only must be a subset of ranks 0 to 1"),
    ],
)
def test_nonsense(script, words, said):
    script(SUMS)
    with pytest.raises(ValueError, match=said):
        run_script(f"{words} --nproc-per-node 2 script.py 1")


def test_out_of_memory_says_what_was_asked_for(script):
    script('import torch\nx = torch.empty(2**34, device="cuda")\ny = x * 2\n')
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 64.00 GiB.* of which 10.51 GiB is free"):
        run_script("--fake --nproc-per-node 2 script.py")


def test_the_backend_of_launch_is_none_of_a_scripts(script, monkeypatch):
    monkeypatch.setenv("TINYDIST_BACKEND", "gloo")
    script(SUMS)
    assert sum(map(sum, run_script("--nproc-per-node 2 script.py 1000").traffic)) == 2 * 4000
