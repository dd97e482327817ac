"""What is not whole, or does not fit, no rank loads: all say why, and nothing has changed on any of them."""

import json
import os
import pickle
import shutil
import sys
import zlib
from functools import partial
from pathlib import Path

import pytest
import torch
from training.small_runs import gpt, launched, longer, made, saved_by, shake, wider

from tinydist.checkpoint.rules import CheckpointError
from tinydist.precision import StaticLossScale
from tinydist.training import Plan
from tinydist.training.checkpoint import EngineState, load, save


def tries(plan, folder, make=gpt, **how):
    """What loading says. Nothing has changed."""
    engine = made(plan, make, **how)
    shake(engine)
    before = [[v.clone() for v in EngineState(engine).kept(row)[0].values()] for row in EngineState(engine).rows]
    drawn = torch.get_rng_state()
    with pytest.raises(CheckpointError) as caught:
        load(engine, folder)
    after = [list(EngineState(engine).kept(row)[0].values()) for row in EngineState(engine).rows]
    assert all(torch.equal(a, b) for x, y in zip(before, after) for a, b in zip(x, y))
    assert torch.equal(torch.get_rng_state(), drawn) and engine.steps == 1
    return str(caught.value)


def assert_all_refuse(folder, reason, make=gpt, **how):
    said = launched(partial(tries, make=make, **how), 4, Plan(2, 2, zero=1), folder)
    assert said == [said[0]] * 4, "each rank raises, with the same reason"
    assert "load failed; no rank was modified. On rank" in said[0] and reason in said[0]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    for name, lr in (("one", 0.01), ("two", 0.02)):
        launched(partial(saved_by, lr=lr), 4, Plan(tp=2, dp=2, zero=2), folder / name)
    return folder


def change_a_byte(path, other):
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "is corrupt: checksum mismatch": change_a_byte,
    "52311 bytes, expected 52312": lambda path, other: path.write_bytes(path.read_bytes()[:-1]),
    "is missing": lambda path, other: path.unlink(),
    "checksum mismatch": lambda path, other: path.write_bytes(other.read_bytes()),
}


@pytest.mark.parametrize("reason", DAMAGE)
def test_files_that_are_damaged_or_of_another_save(saved, reason, tmp_path):
    folder = shutil.copytree(saved / "one", tmp_path / "copy")
    one, two = (sorted(each.glob("*/*.safetensors"))[2] for each in (folder, saved / "two"))
    DAMAGE[reason](one, two)
    assert_all_refuse(folder, reason)


def test_another_model_or_optimizer(saved):
    assert_all_refuse(saved / "one", "is missing in the checkpoint", make=longer)
    assert_all_refuse(saved / "one", "has shape [37, 24], but [37, 12] was saved", make=wider)
    assert_all_refuse(saved / "one", "saved with AdamW, but the optimizer is SGD", optimizer=torch.optim.SGD)


def test_another_rule_for_the_loss_scale(tmp_path):
    """The rule of a scaler is chosen by who makes it."""

    def program():
        engine = made(Plan(dp=2, precision="fp16"))
        engine.scaler.rule = StaticLossScale()
        save(engine, tmp_path)
        return tries(Plan(dp=2, precision="fp16"), tmp_path)

    assert "the scaler's rule is DynamicLossScale, but StaticLossScale was saved" in launched(program, 2)[0]


def test_a_larger_model_was_saved(tmp_path):
    """Each rank finds all of its own; together they miss some."""
    launched(saved_by, 1, Plan(), tmp_path, longer)
    assert_all_refuse(tmp_path, "the module has no blocks.4.attention.out.bias")


def test_a_part_that_nobody_has_saved(saved, tmp_path):
    """Whoever writes an index without it, with the right checksum."""
    folder = shutil.copytree(saved / "one", tmp_path / "copy")
    forge(folder, lambda index: index["ranks"][1]["places"].pop("blocks.1.mlp.down.weight"))
    assert_all_refuse(folder, "blocks.1.mlp.down.weight")


def forge(folder, change):
    path = folder / "checkpoint.json"
    index = json.loads(path.read_bytes()[:-10])
    change(index)
    text = json.dumps(index).encode()
    path.write_bytes(text + b"\n%08x\n" % zlib.crc32(text))


def test_loading_runs_no_code(saved, tmp_path):
    """A pickle in the place of numbers, with the right checksum, is no pickle to us; one beside them is not opened."""
    folder = shutil.copytree(saved / "one", tmp_path / "copy")
    program = pickle.dumps(Program(str(tmp_path / "it ran")))
    path = sorted(folder.glob("*/*.safetensors"))[0]
    for beside in (folder / "checkpoint.pt", path.with_name("optimizer.pt")):
        beside.write_bytes(program)
    opened = []
    launched(lambda: load(made(Plan()), watched(folder, opened)) and None, 1)
    assert opened and {Path(each).suffix for each in opened} <= {".json", ".safetensors"}

    path.write_bytes(program)
    about = {"bytes": len(program), "checksum": f"{zlib.crc32(program):08x}"}
    forge(folder, lambda index: index["ranks"][0].update(about))
    assert_all_refuse(folder, "SafetensorError")
    assert not (tmp_path / "it ran").exists()
    pickle.loads(program)
    assert (tmp_path / "it ran").exists(), "so it would have been seen"


class Program:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def watched(folder, opened):
    """From now on, the files in it that Python opens."""

    def hook(event, arguments):
        if event == "open" and str(arguments[0]).startswith(f"{folder}{os.sep}"):
            opened.append(str(arguments[0]))

    sys.addaudithook(hook)  # for ever; other tests have other folders
    return folder
