"""``tinydist run``: programs in the styles that people write end as under torchrun."""

import json
import os
import re
import subprocess
import sys

import pytest
from scripts.running import PROGRAMS

NAMES = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK MASTER_ADDR MASTER_PORT"


def test_a_script_for_torchrun_with_arguments_a_dataclass_and_a_log(run):
    ran = run("--nproc-per-node", 4, "ddp.py", "--steps", 1)
    assert ran.status == 0
    assert ran.out[0] == "[rank 0] settings {'steps': 1, 'lr': 0.1}"
    assert re.match(r"4 simulated ranks: [\d.]+ s here, \d+ us of virtual time on 1 x 8 A100 80GB", ran.out[1])
    ring, buckets, loss = 2 * (4 - 1), 2 * 644, 4  # bytes
    assert ring * (buckets + loss) == 7752 and ran.out[2].startswith("sent: 7.75 kB by all_reduce, 2.29 kB by broad")
    assert ran.out[3].startswith("fullest: rank 0, ") and " activations, 644 B parameters" in ran.out[3]
    assert [line[:17] for line in ran.err] == ["[rank 0] epoch 0 "]  # at its level each rank has a log of its own


def test_the_ranks_of_two_nodes_are_started_here(run):
    lines = """
        import os, sys
        import torch.distributed as dist
        dist.init_process_group()
        print(*[os.environ[name] for name in sys.argv[1:]], os.environ["TORCHELASTIC_RUN_ID"])
    """
    ran = run(
        "--nnodes",
        2,
        "--nproc_per_node=2",
        "--rdzv-id",
        "mine",
        "--master-addr",
        "host",
        lines=lines,
        then=NAMES.split(),
    )
    assert ran.out[:4] == [f"[rank {r}] {r} 4 {r % 2} 2 {r // 2} 2 {r} host 29500 mine" for r in range(4)]


def test_what_a_script_does_not_import_is_not_loaded(tmp_path):
    """DTensor and sympy take longer to load than tinydist."""
    script = tmp_path / "script.py"
    heavy = "torch.distributed.tensor", "torch.distributed.pipelining", "torch._dynamo", "sympy"
    script.write_text(f"import sys, torch.distributed\nprint([name for name in {heavy} if name in sys.modules])")
    words = sys.executable, "-m", "tinydist", "run", "--quiet", script
    assert subprocess.run(words, check=True, capture_output=True, text=True).stdout == "[]\n"


def test_one_process_is_the_default_and_prints_without_a_prefix(run):
    ran = run("--quiet", lines="import os, sys; print(os.environ['WORLD_SIZE'], __name__, sys.argv)", then=["a", "--b"])
    assert ran.out == ["1 __main__ ['script.py', 'a', '--b']"] and ran.err == []


def test_ranks_are_started_also_where_a_scheduler_has_set_rank(run, monkeypatch):
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "16")
    ran = run("--quiet", "--nproc-per-node", 2, lines="import os; print(os.environ['RANK'], os.environ['WORLD_SIZE'])")
    assert ran.out == ["[rank 0] 0 2", "[rank 1] 1 2"] and os.environ["RANK"] == "5"


@pytest.mark.parametrize("module, who", [("package.train", "the module"), ("package", "the package")])
def test_each_rank_has_the_package_of_a_module_for_itself(run, module, who):
    ran = run("--nproc-per-node", 3, "--quiet", "-m", module, "x")
    assert sorted(ran.out) == [f"[rank {r}] {who}: rank {r} has seen {r + 2}, ['x'], package" for r in range(3)]
    assert not [name for name in sys.modules if name.partition(".")[0] == "package"]


def test_a_trainer_resumes_from_its_snapshot(run, tmp_path):
    first = run("--nproc-per-node", 2, "--quiet", "trainer.py", tmp_path / "snapshot.pt", 2)
    again = run("--nproc-per-node", 2, "--quiet", "trainer.py", tmp_path / "snapshot.pt", 4)
    whole = run("--nproc-per-node", 2, "--quiet", "trainer.py", tmp_path / "another.pt", 4)
    assert (first.status, again.status, whole.status) == (0, 0, 0)
    assert sorted(again.out)[0] == "[rank 0] rank 0 resumes at epoch 2"
    assert sorted(each for each in again.out if "weight" in each) == sorted(whole.out)


def test_fsdp2_and_a_distributed_checkpoint(run, tmp_path):
    ran = run("--nproc-per-node", 2, "--quiet", "sharded.py", tmp_path / "checkpoint")
    assert ran.out == [f"[rank {r}] rank {r}: as saved, 32 weights of 64 here" for r in range(2)]


def test_a_module_that_communicates_while_it_is_imported(run):
    ran = run("--nproc-per-node", 3, "--quiet", PROGRAMS / "at_import" / "run.py")
    assert ran.out == [f"[rank {r}] rank {r} of 3: 3.0" for r in range(3)]


def test_the_report_has_pictures_a_trace_and_numbers(run, tmp_path):
    ran = run("--nproc-per-node", 2, "--report", tmp_path / "report", "ddp.py", "--steps", 1)
    written = {each.name for each in (tmp_path / "report").iterdir()}
    assert written == {"timeline.png", "memory.png", "traffic.png", "trace.json", "summary.txt", "summary.json"}
    numbers = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert numbers["ranks"] == 2 and sum(numbers["sent_bytes_by_rank"]) == sum(
        numbers["sent_bytes_by_operation"].values()
    )
    assert (tmp_path / "report" / "summary.txt").read_text().splitlines()[:3] == ran.out[1:4]


def test_a_shuffled_schedule_is_another_legal_order_and_the_same_for_a_seed(run):
    lines = """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        for _ in range(3):
            dist.all_reduce(torch.ones(1))
            print("here")
    """
    shuffled = "--nproc-per-node", 4, "--quiet", "--schedule", "shuffle", "--seed"
    orders = [run(*shuffled, seed, lines=lines).out for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2] and sorted(orders[0]) == sorted(orders[2])


def test_only_the_local_ranks_of_the_filter_are_shown(run):
    lines = "import os, sys; print('out'); print('err', file=sys.stderr)"
    ran = run("--nnodes", 2, "--nproc-per-node", 2, "--quiet", "--local-ranks-filter", "1", lines=lines)
    assert ran.out == ["[rank 1] out", "[rank 3] out"] and ran.err == ["[rank 1] err", "[rank 3] err"]


def test_a_straggler_is_named(run):
    ran = run("--nproc-per-node", 4, "faults.py", "straggles")
    told = "straggler: rank 2 came last in 3 of 3 calls by work of its own; the next-to-last waited "
    assert ran.out[-1].startswith(told)


def apart(*words):
    """In a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    words = [sys.executable, "-m", "tinydist", "run", *words]
    return subprocess.run(words, cwd=PROGRAMS, env=environment, capture_output=True, text=True)


def test_on_gloo_the_same_script_runs_on_processes_and_finds_the_same():
    for _ in range(3):  # at its end gloo aborts a process by chance, which torchrun alone sees as well
        real = apart("--backend", "gloo", "--nproc-per-node", "2", "ddp.py", "--steps", "1")
        if "terminate called without an active exception" not in real.stderr:
            break
    simulated = apart("--nproc-per-node", "2", "--quiet", "ddp.py", "--steps", "1")
    assert (real.returncode, simulated.returncode) == (0, 0), real.stderr + simulated.stderr
    assert re.findall("settings .*", real.stdout) == re.findall("settings .*", simulated.stdout) != []
    assert re.findall("loss .*", real.stderr) == re.findall("loss .*", simulated.stderr) != []
