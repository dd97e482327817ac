"""torchrun's options: each is used, fulfilled, ignored with a line, or refused in words."""

import pytest
from torch.distributed.run import get_args_parser

from tinydist.scripts import command, processes
from tinydist.scripts.torchrun_options import FULFILLED, IGNORED, USED, WHY_NOT, nodes

SCRIPT = "import os; print(os.environ['WORLD_SIZE'], os.environ['LOCAL_RANK'], os.environ.get('CUDA_VISIBLE_DEVICES'))"


def test_each_option_of_torchrun_is_known():
    names = set(vars(get_args_parser().parse_args(["script"]))) - {"training_script", "training_script_args"}
    assert names <= USED | FULFILLED | IGNORED | WHY_NOT.keys()
    assert not (USED & FULFILLED or USED & IGNORED or FULFILLED & IGNORED)


@pytest.mark.parametrize(
    "words", ["--nproc-per-node 2", "--nproc_per_node=2", "--standalone --nproc-per-node 2 --node-rank 1"]
)
def test_spellings(run, words):
    ran = run("--quiet", *words.split(), lines=SCRIPT)
    assert len(ran.out) == 2 and ran.err == []


@pytest.mark.parametrize(
    "words", ["--tee 3", "-r 3", "--max-restarts 2", "--monitor-interval 5", "--numa-binding node"]
)
def test_what_has_no_effect_is_told_in_one_line(run, words):
    ran = run("--quiet", *words.split(), lines=SCRIPT)
    name = "--redirects" if words.startswith("-r") else words.split()[0]
    assert ran.status == 0 and ran.err == [f"run: no effect on simulated ranks: {name}"]


def test_options_come_from_the_environment_as_well(run, monkeypatch):
    monkeypatch.setenv("PET_NPROC_PER_NODE", "3")
    monkeypatch.setenv("PET_TEE", "1")
    ran = run("--quiet", lines=SCRIPT)
    assert len(ran.out) == 3 and ran.err == ["run: no effect on simulated ranks: --tee"]


def test_a_virtual_local_rank_is_0_and_sees_one_gpu(run):
    ran = run("--quiet", "--nproc-per-node", 2, "--virtual-local-rank", lines=SCRIPT)
    assert ran.out == ["[rank 0] 2 0 0", "[rank 1] 2 0 1"]


@pytest.mark.parametrize(
    "words, error",
    [
        ("--no-python x", "run: --no-python is not supported on simulated ranks"),
        ("--nnodes 0 ddp.py", "run: --nnodes must be an integer >= 1 or a range MIN:MAX of these, got '0'"),
        ("--nnodes 4:2 ddp.py", "run: --nnodes must be an integer >= 1 or a range"),
        ("--nnodes two ddp.py", "run: --nnodes must be"),
        ("--nproc-per-node 0 ddp.py", "run: --nproc-per-node must be an integer >= 1, auto, cpu or gpu, got '0'"),
        ("--nproc-per-node -1 ddp.py", "run: --nproc-per-node must be"),
        ("--nproc-per-node xpu ddp.py", "run: --nproc-per-node must be"),
        ("--nproc-per-node gpu ddp.py", "run: --nproc-per-node gpu requires --gpus"),
        ("--local-ranks-filter a ddp.py", "run: --local-ranks-filter must be integers separated by commas, got 'a'"),
        ("--cluster nowhere ddp.py", "unknown cluster 'nowhere'; available: 'laptop'"),
        ("--cluster laptop --nproc-per-node 100 ddp.py", "run: 100 processes per node exceed the "),
        ("--cluster laptop --nnodes 2 ddp.py", "run: --nnodes 2 requires a cluster whose nodes are joined"),
        ("nothing.py", "run: no script nothing.py (in "),
        ("package", "run: package is a folder; pass a Python script, or a module with -m"),
        ("-m no_such_module", "run: no module named 'no_such_module'"),
        ("--gpus nowhere ddp.py", "run: no script nowhere"),
        ("--seed -1 ddp.py", "launch: seed must be an integer from 0 to 2**64 - 1, got -1"),
        ("--nproc-per-node 10000000 ddp.py", "launch: 10,000,000 simulated ranks require"),
        ("--value loss=3 ddp.py", "run: --value"),
        ("--backend gloo --seed 3 --gpus ddp.py", "run: --gpus, --seed: supported on simulated ranks only"),
    ],
)
def test_nonsense_is_refused_in_words(run, words, error):
    ran = run(*words.split())
    assert ran.status in (1, 2) and ran.out == [] and len(ran.err) == 1 and ran.err[0].startswith(error), ran.err


@pytest.mark.parametrize(
    "words", ["--schedule lifo ddp.py", "--backend nccl ddp.py", "--seed x ddp.py", "--nproc 2 ddp.py", ""]
)
def test_what_argparse_refuses(run, words, capsys):
    with pytest.raises(SystemExit) as ended:
        run(*words.split())
    assert ended.value.code == 2 and "error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["--gpus train.py --gpus", "--cluster x --gpus train.py H100 pod", "train.py --gpus H100"]
)
def test_words_after_the_script_are_the_scripts(words):
    chosen = command.parsed(words.split())
    assert chosen.training_script == "train.py" and chosen.training_script_args == words.split("train.py")[1].split()


def test_a_cluster_that_does_not_exist_is_told(run):
    ran = run("--gpus", "H200 pod", "ddp.py")
    assert ran.status == 2 and ran.err[0].startswith("unknown cluster 'H200 pod'; available: 'laptop', ")


def test_a_cluster_may_follow_gpus():
    chosen = command.parsed(["--gpus", "H100 pod", "--nnodes", "2", "train.py", "--lr", "1"])
    assert (chosen.gpus, chosen.cluster, chosen.nnodes) == (True, "H100 pod", "2")
    assert (chosen.training_script, chosen.training_script_args) == ("train.py", ["--lr", "1"])


@pytest.mark.parametrize("text, number", [("1", 1), ("3", 3), ("1:4", 1), ("2:2", 2)])
def test_of_a_range_of_nodes_as_many_as_must_be_there(text, number):
    assert nodes(text) == number


def test_gloo_gets_torchruns_own_options():
    words = ["--backend", "gloo", "--nproc-per-node", "2", "--nnodes", "2", "--tee", "3", "-m", "pkg", "--lr", "1"]
    first, second = processes.commands(command.parsed(words))
    assert first[1:6] == ["-m", "torch.distributed.run", "--nproc-per-node=2", "--module", "--tee=3"]
    assert first[-4:] == ["--node-rank=0", "pkg", "--lr", "1"] and second[-4] == "--node-rank=1"
    alone = processes.commands(command.parsed(["--backend", "gloo", "--standalone", "train.py"]))
    assert alone[0][1:] == ["-m", "torch.distributed.run", "--standalone", "train.py"]
