"""``python -m tinydist train``: what one types, and what comes of it."""

import json
import os
import re
import socket
import subprocess
import sys

import pytest
import torch.distributed as dist
from training.torchrun import torchrun

import tinydist.training.command as command
from tinydist.__main__ import main
from tinydist.training import encode
from tinydist.training.run_folder import only_run_in

TINY = "--model layers=2,dim=16,heads=2,context=8 --batch 4 --grad-clip 1 --steps 4"


def train(words):
    return main(["train", *words.split()])


def states(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def losses(path):
    return [state["loss"] for state in states(path)]


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory):
    path = tmp_path_factory.mktemp("one") / "history"
    assert train(f"{TINY} --history {path}") == 0
    return losses(path)


def test_it_says_how_it_goes(capsys):
    assert train(f"{TINY} --validate-every 2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"step {step} of 4" for step in (1, 2, 3, 4)] + ["steps 1 to 4"]
    assert ["held out" in line for line in lines] == [False, True, False, True, False]
    assert "validation loss" in lines[-1]


GATHERED = "dp=2,pp=2 --zero 1 --overlap-param-gather"

CONTEXT = ["dp=2,cp=2", "cp=2,tp=2 --context-parallel gather --zero 2", "cp=2 --context-parallel ulysses"]


@pytest.mark.parametrize("mesh", ["dp=2,pp=2,tp=2", "dp=4 --zero 3", "pp=2 --microbatches 2", GATHERED, *CONTEXT])
def test_every_mesh_has_the_losses_of_one_process(tmp_path, in_one_process, mesh):
    assert train(f"{TINY} --mesh {mesh} --history {tmp_path}/history") == 0
    assert losses(tmp_path / "history") == pytest.approx(in_one_process, abs=1e-5)


EXPERTS = f"{TINY} --num-experts 8 --moe-aux-loss-coeff 0.1 --moe-z-loss-coeff 0.01 --moe-router-bias-update-rate 0.01"


def test_experts_on_any_mesh_have_the_losses_of_one_process(tmp_path):
    """And a run with experts goes on where others share them."""
    assert train(f"{EXPERTS} --history {tmp_path}/one") == 0
    assert train(f"{EXPERTS} --mesh dp=4,ep=4 --zero 3 --history {tmp_path}/four --folder {tmp_path} --steps 2") == 0
    assert train(f"{EXPERTS} --mesh pp=2,dp=2,ep=2 --history {tmp_path}/four --folder {tmp_path}") == 0
    assert losses(tmp_path / "four") == pytest.approx(losses(tmp_path / "one"), abs=1e-5)


def test_a_checkpoint_with_other_experts_is_refused(tmp_path, capsys):
    assert train(f"{EXPERTS} --steps 1 --folder {tmp_path}") == 0
    assert train(f"{EXPERTS} --folder {tmp_path} --moe-router-topk 3") == 2
    assert "of a run with experts of a token 2, and this one has experts of a token 3" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked")
def test_torchrun_has_the_losses_of_simulated_ranks(tmp_path):
    words = f"{TINY} --mesh dp=2,tp=2 --zero 2 --lr-schedule cosine --warmup-steps 2 --history"
    assert train(f"{words} {tmp_path}/simulated") == 0
    assert torchrun(4, "train", *words.split(), f"{tmp_path}/processes", "--report", f"{tmp_path}/report") == 0
    assert losses(tmp_path / "processes") == pytest.approx(losses(tmp_path / "simulated"), abs=1e-5)
    assert states(tmp_path / "processes")[0]["memory"][1] == "process"
    for rank in range(4):
        found = json.loads((tmp_path / "report" / f"rank-{rank}.json").read_text())["traceEvents"]
        assert any(event.get("name") == "gloo:all_reduce" for event in found)


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked")
def test_torchrun_trains_by_a_configuration_of_deepspeeds_to_the_losses_of_simulated_ranks(tmp_path):
    said = {"train_batch_size": "auto", "gradient_accumulation_steps": 2, "gradient_clipping": "auto"}
    said |= {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    (tmp_path / "ds_config.json").write_text(json.dumps(said))
    words = f"{TINY} --mesh dp=2 --config {tmp_path}/ds_config.json --history"
    assert train(f"{words} {tmp_path}/simulated") == 0
    assert torchrun(2, "train", *words.split(), f"{tmp_path}/processes") == 0
    assert losses(tmp_path / "processes") == pytest.approx(losses(tmp_path / "simulated"), abs=1e-5)


@pytest.mark.parametrize("mesh", ["dp=2 --zero 2", "pp=2"])
def test_what_has_stopped_goes_on_whatever_the_mesh(tmp_path, capsys, mesh):
    words = f"{TINY} --folder {tmp_path}/run --history {tmp_path}/history"
    assert train(f"{TINY} --mesh dp=2 --zero 2 --history {tmp_path}/unbroken") == 0
    assert train(f"{words} --mesh dp=2 --zero 2 --steps 2") == 0
    assert train(f"{words} --mesh {mesh}") == 0
    assert [state["step"] for state in states(tmp_path / "history")] == [0, 1, 2, 3]
    unbroken, found = losses(tmp_path / "unbroken"), losses(tmp_path / "history")
    assert found == (unbroken if mesh.startswith("dp") else pytest.approx(unbroken, abs=1e-5))
    assert train(f"{words} --mesh {mesh}") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "nothing to do: the checkpoint has all 4 steps"


def test_a_report_of_a_step(tmp_path, capsys):
    assert train(f"{TINY} --mesh dp=2,tp=2 --cluster laptop --report {tmp_path}/new/report") == 0
    found = sorted(path.name for path in (tmp_path / "new" / "report").iterdir())
    assert found == ["memory.png", "timeline.png", "trace.json", "traffic.png"]
    assert all((tmp_path / "new" / "report" / name).read_bytes()[:4] == b"\x89PNG" for name in found if "png" in name)
    assert json.loads((tmp_path / "new" / "report" / "trace.json").read_text())["traceEvents"]
    *_, step, where = capsys.readouterr().out.splitlines()
    assert step.startswith("a step takes ") and "on 1 x 8 1/8 of laptop CPU" in step and "MFU" in step
    assert where == f"report written to {tmp_path}/new/report"


def test_a_text_and_its_tokens_train_alike(tmp_path):
    text = tmp_path / "text"
    text.write_bytes(bytes(range(256)) * 4)
    encode(text, tmp_path / "tokens")
    for name in ("text", "tokens"):
        assert train(f"{TINY} --data {tmp_path}/{name} --history {tmp_path}/{name}.history") == 0
    assert losses(tmp_path / "text.history") == losses(tmp_path / "tokens.history")


REFUSED = {
    "--batch many": "train: argument --batch: invalid int value: 'many'",
    "--depth 3": "train: unrecognized arguments: --depth 3",
    "--mesh dp:2": "Plan: a mesh has the form dp=2,pp=2,tp=2 with axes pp, dp, cp, tp, ep, replicate, got 'dp:2'",
    "--mesh dp=3": "Plan: batch (16) must be divisible by dp (3) x microbatches (1)",
    "--mesh tp=3": "train: heads (4) must be divisible by tp (3)",
    "--mesh tp=2 --sequence-parallel save --model context=63": "train: the sequence length (63) must be divisible",
    "--mesh dp=4,ep=2": "train: ep (2) ranks share the experts, but the model has none",
    "--num-experts 6 --mesh dp=4,ep=4": "train: experts (6) must be divisible by ep (4)",
    "--num-experts 6 --mesh dp=2,ep=4": "Plan: dp (2) x cp (1) must be divisible by ep (4): these ranks share the exp",
    "--num-experts 2 --moe-router-topk 3": "train: --moe-router-topk (3) must be at most --num-experts (2)",
    "--moe-aux-loss-coeff 0.1": "train: --moe-aux-loss-coeff requires --num-experts",
    "--num-experts 0": "train: --num-experts must be an integer >= 1, or None, got 0",
    "--mesh pp=4": "train: pp(4) x chunks(1) = 4 stages, but 2 layers",
    "--model dim=63": "GPTConfig: dim (63) must be divisible by heads (4)",
    "--model width=64": "train: a model has the form layers=2,dim=64 with keys context, layers, heads, dim, got ",
    "--zero 4": "Plan: zero must be an integer from 0 to 3, got 4",
    "--zero 3 --overlap-param-gather": "Plan: overlap_param_gather is for the all-gather after a step: zero must be",
    "--lr-schedule root": "train: --lr-schedule must be one of constant, linear, cosine, wsd, got 'root'",
    "--warmup-steps 100": "constant: warmup_steps (100) must be < steps (100)",
    "--save-every 5": "train: --save-every requires --folder",
    "--validate-every 0": "train: --validate-every must be an integer >= 1, or None, got 0",
    "--data /nowhere/text": "train: /nowhere/text: No such file or directory",
    "--history /nowhere/history": "train: /nowhere/history: No such file or directory",
    "--model context=900000": "Batches: a window has context + 1 = 900,001 tokens, but there are ",
    "--backend gloo --cluster laptop": "train: --cluster requires simulated ranks",
    "--timeout 0": "train: --timeout must be a number of seconds > 0, or None, got 0.0",
    "--timeout 60": "train: --timeout requires torchrun",
    "--model layers=1000000,dim=640": "train: the model has 19",
    "--data=": "train: --data has an empty value: give a name, or leave it out",
    "--config=": "train: --config has an empty value",
    "--report=": "train: --report has an empty value",
    "--data /dev/null": "train: /dev/null: it is no file",
    "--backend nccl": "launch: nccl requires one GPU per rank: 1 ranks, but 0 GPUs are available",
    "--allow-change lr": "train: --allow-change must be",
    "--mesh dp=16 --cluster laptop": "the cluster has 1 node x 8 devices = 8, but 16 ranks were requested",
}


@pytest.mark.parametrize("words", REFUSED)
def test_options_of_which_nothing_can_be_made_are_refused_in_a_line(capsys, words):
    assert train(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(REFUSED[words]) and err.count("\n") == 1


def test_a_backend_that_the_environment_names_wrongly_is_refused(capsys, monkeypatch):
    monkeypatch.setenv("TINYDIST_BACKEND", "bogus")
    assert train("--steps 1") == 2
    assert capsys.readouterr().err == "launch: backend must be one of simulated, gloo, nccl, got 'bogus'\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_standard_output_that_is_full_is_told_in_a_line():
    command = [sys.executable, "-m", "tinydist", "train", *TINY.split()]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "tinydist: standard output: No space left on device"
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_ends_the_run_with_the_name_of_the_file(capsys):
    assert train(f"{TINY} --history /dev/full") == 1
    assert capsys.readouterr().err == "train: /dev/full: No space left on device\n"


def test_torchrun_with_another_number_of_processes_is_told_both(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert train("--mesh dp=2,pp=2,tp=2") == 2
    assert capsys.readouterr().err == "train: pp(2) x dp(2) x tp(2) = 8 ranks, but torchrun started 4\n"
    monkeypatch.setenv("RANK", "1")
    assert train("--mesh dp=2,pp=2,tp=2") == 2 and capsys.readouterr().err == ""


def test_a_rank_waits_for_one_that_never_comes_as_long_as_it_is_told(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setenv("MASTER_PORT", str(free.getsockname()[1]))
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(dist.DistStoreError, match="1/2 clients joined"):
        train(f"{TINY} --mesh dp=2 --backend gloo --timeout 0.2")


def test_a_checkpoint_of_another_model_is_refused_in_a_line(tmp_path, capsys):
    assert train(f"{TINY} --steps 1 --folder {tmp_path}") == 0
    assert train(f"--folder {tmp_path}") == 2
    assert capsys.readouterr().err.startswith("load failed; no rank was modified. On rank")


OTHER_RUNS = {
    "--seed 1": "a run with seed 0, and this one has seed 1: the rest of the data comes in another order",
    "--batch 8": "a run with batch 4, and this one has batch 8: of the data's order, 8 sequences are done, and step 2 "
    "now begins at number 16. --allow-change batch goes on with it",
    "--model layers=2,dim=16,heads=4,context=8": "a run with heads 2, and this one has heads 4: the weights have",
    "--data {text}": "a run with data ",
    "--validate-every 2": "a run with held_out 0, and this one has held_out 0.1: the windows are cut anew",
}


@pytest.mark.parametrize("change", OTHER_RUNS)
def test_a_checkpoint_of_another_run_is_refused_with_both_values(change, tmp_path, capsys):
    (tmp_path / "text").write_bytes(bytes(range(256)) * 4)
    words = f"--model layers=2,dim=16,heads=2,context=8 --batch 4 --folder {tmp_path}/run"
    assert train(f"{words} --steps 2") == 0
    capsys.readouterr()
    changed = f"{words} --steps 3 {change.format(text=tmp_path / 'text')}"
    assert train(changed) == 2
    err = capsys.readouterr().err
    assert f"train: the checkpoint in {tmp_path}/run is of {OTHER_RUNS[change]}" in err and err.count("\n") == 1
    allowed = re.search("--allow-change ([a-z-]+) goes on", err)[1]
    assert train(f"{changed} --allow-change {allowed}") == 0
    assert train(f"{words} --steps 3") == 2  # it is that run now


def test_a_second_run_in_a_folder_is_refused_while_the_first_one_is_there(tmp_path, capsys):
    with only_run_in(tmp_path):
        assert train(f"{TINY} --mesh dp=2 --folder {tmp_path}") == 2
        told = capsys.readouterr().err
        assert told.startswith(f"train: process {os.getpid()} on ") and f"its checkpoints in {tmp_path}, and" in told
    assert train(f"{TINY} --mesh dp=2 --folder {tmp_path}") == 0


def test_a_run_that_was_killed_leaves_its_folder_to_others(tmp_path):
    there = f"""
from tinydist.training.run_folder import only_run_in
with only_run_in({str(tmp_path)!r}):
    print(flush=True)
    input()
"""
    with subprocess.Popen([sys.executable, "-c", there], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        assert train(f"{TINY} --folder {tmp_path}") == 2
        other.kill()
        other.wait()
        assert train(f"{TINY} --folder {tmp_path}") == 0


def test_steps_and_rates_may_change_as_a_run_goes_on(tmp_path):
    assert train(f"{TINY} --steps 2 --folder {tmp_path}") == 0
    assert train(f"{TINY} --steps 3 --lr 1e-4 --lr-schedule cosine --folder {tmp_path}") == 0


def test_a_loss_that_is_no_number_ends_the_run(tmp_path, capsys):
    assert train(f"{TINY} --lr 1e30 --folder {tmp_path} --save-every 1") == 1
    err = capsys.readouterr().err
    assert err.startswith("train: the loss of step 1 is nan (rank 0)") and err.count("\n") == 1


def test_an_interrupt_is_no_error_of_the_programs(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(command, "launch", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    assert train(f"{TINY} --folder {tmp_path}") == 130
    assert capsys.readouterr().err == f"train: interrupted; the checkpoints in {tmp_path} are complete\n"


def test_it_shows_its_options_and_others_refuse_them(capsys):
    with pytest.raises(SystemExit, match="0"):
        train("--help")
    assert "--mesh dp=2,pp=2,tp=2" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["list", "--mesh", "dp=2"])
    assert "unrecognized arguments: --mesh" in capsys.readouterr().err
