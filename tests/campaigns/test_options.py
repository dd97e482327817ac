"""Random options of ``train`` and ``plan``, sensible and not: a run, or words that say why not; never a traceback."""

import contextlib
import io
import json
import random

import pytest

from tinydist.__main__ import main

NONSENSE = [
    "",
    "0",
    "-1",
    "1.5",
    "nan",
    "inf",
    "1e300",
    "10**20",
    "100000000000000000000",
    "x" * 300,
    "\x1b[31m",
    "=",
    ",",
]
TRAIN = {
    "--mesh": ["dp=2", "pp=2", "tp=2", "dp=2,pp=2", "dp=2,replicate=2", "pp=2,tp=2", "dp=0", "dp=2,dp=2", "ep=2"],
    "--model": ["layers=2,dim=16,heads=2,context=8", "layers=3,dim=16", "layers=0", "dim=4000000", "heads=3,dim=16"],
    "--batch": ["4", "8", "3"],
    "--steps": ["1", "2"],
    "--lr": ["1e-3", "1e30"],
    "--lr-schedule": ["constant", "linear", "cosine", "wsd", "step"],
    "--warmup-steps": ["1", "5"],
    "--grad-clip": ["1"],
    "--zero": ["0", "1", "2", "3", "4"],
    "--microbatches": ["1", "2", "3"],
    "--schedule": ["gpipe", "1f1b", "interleaved", "bfs"],
    "--precision": ["fp32", "bf16", "fp16", "fp8"],
    "--recompute": ["none", "selective", "full"],
    "--seed": ["1"],
    "--save-every": ["1"],
    "--validate-every": ["1"],
    "--folder": ["FOLDER/run", "/dev/null", "FOLDER/file"],
    "--data": ["FOLDER/file", "FOLDER/none", "FOLDER"],
    "--history": ["FOLDER/history", "/dev/full", "FOLDER"],
    "--config": ["FOLDER/ds.json", "FOLDER/file", "FOLDER"],
    "--cluster": ["H100 pod", "no such"],
    "--backend": ["simulated", "nccl", "bogus"],
    "--timeout": ["5"],
    "--offload": [],
    "--no-such-option": ["1"],
}
PLAN = {
    "--model": ["llama-3-8b", "gpt-3", "llama-3-70b", "no such"],
    "--cluster": ["H100 pod", "A100 node", "no such"],
    "--program": ["Megatron-LM", "DeepSpeed", "tinydist", "no such"],
    "--devices": ["1", "7", "8", "64"],
    "--batch": ["1", "7", "512"],
    "--tokens": ["1e9", "15e12"],
    "--price": ["2"],
    "--watts": ["700"],
}
SENSIBLE = 0.85  # of what is drawn


def drawn(table, number, always):
    draw = random.Random(number)
    words = []
    for option in always + draw.sample(sorted(set(table) - set(always)), draw.randint(0, 5)):
        values = table[option]
        if not values:
            words += [option]
        elif draw.random() < SENSIBLE or option in always:
            words += [option, draw.choice(values[:2] if option in always else values)]
        else:
            words += [f"{option}={draw.choice(NONSENSE)}"]
    return words


def ended(command, words):
    """The exit status, and what was said."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main([command, *words])
        except SystemExit as end:
            status = end.code
    return status, out.getvalue(), err.getvalue()


def assert_it_runs_or_says_why(command, words):
    status, out, err = ended(command, words)
    assert status in (0, 1, 2), (words, status)
    assert "Traceback" not in out + err, (words, err)
    assert status == 0 or (out + err).strip(), (words, "nothing is said")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a file may be called 1e300
    (tmp_path / "file").write_bytes(b"not what it should be")
    config = {"train_batch_size": 4, "zero_optimization": {"stage": 1}}
    (tmp_path / "ds.json").write_text(json.dumps(config))
    return str(tmp_path)


@pytest.mark.parametrize("numbers", [range(3), pytest.param(range(3, 300), marks=pytest.mark.exhaustive)], ids=str)
def test_train(numbers, folder):
    for number in numbers:
        words = drawn(TRAIN, number, ["--model", "--batch", "--steps"])
        assert_it_runs_or_says_why("train", [word.replace("FOLDER", folder) for word in words])


@pytest.mark.parametrize("numbers", [range(3), pytest.param(range(3, 300), marks=pytest.mark.exhaustive)], ids=str)
def test_plan(numbers):
    for number in numbers:
        assert_it_runs_or_says_why("plan", drawn(PLAN, number, ["--model"]))
