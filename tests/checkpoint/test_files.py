"""Checkpoints as files: what one world saves another loads; what is not whole is loaded by nobody."""

import errno
import json
import os
import shutil

import pytest
import torch
from checkpoint.small_checkpoints import OPTIMIZERS, Small, loaded_by, saved_by
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from tiny_training import tiny_mlp
from torch import nn
from unobserved import launch
from zero.ladder import all_of, assert_same, everything, linear, stage_0, stage_1, stage_2, stage_3, train

import tinydist
from tinydist import checkpoint
from tinydist.checkpoint import files as checkpoint_files
from tinydist.checkpoint.rules import CheckpointError
from tinydist.precision import MasterWeights
from tinydist.zero import NVMeOffload, ZeROInfinity, ZeROOffload

RUNGS = [stage_0, stage_1, stage_2, stage_3]
ranks = some.sampled_from([1, 2, 3, 4, 8])
rungs = some.sampled_from(RUNGS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ranks, rungs, ranks, rungs, some.sampled_from(list(OPTIMIZERS)), some.booleans(), some.booleans())
def test_what_p_ranks_save_q_ranks_load(tmp_path, p, a, q, b, optimizer, groups, observe):
    """In any stages: nothing is lost, and nothing changed, to the last bit."""
    saved = launch(saved_by, p, a, optimizer, tmp_path, 1, groups, observe=observe).results
    loaded = launch(loaded_by, q, b, optimizer, tmp_path, groups, observe=observe).results
    for found in loaded:
        assert_same(found, saved[0])


def test_one_process_without_a_process_group_loads_what_four_ranks_saved(tmp_path):
    saved = launch(saved_by, 4, stage_3, "AdamW", tmp_path).results[0]
    assert_same(loaded_by(stage_0, "AdamW", tmp_path), saved)


def in_16_bits(rung):
    module = tiny_mlp().bfloat16()
    if rung is stage_0:
        return stage_0(module, lambda given, **options: MasterWeights(given, torch.optim.AdamW, **options), lr=0.01)
    return rung(module, lr=0.01)


def half(step):
    return [tensor.bfloat16() for tensor in everything(step)]


@pytest.mark.parametrize("saving, loading", [(stage_3, stage_0), (stage_0, stage_1), (stage_0, stage_0)])
def test_master_weights_are_what_is_saved(saving, loading, tmp_path):
    def save():
        zero = in_16_bits(saving)
        train(zero, half, 2)
        checkpoint.save(zero, tmp_path)
        saved = all_of(zero)
        train(zero, half, 1)
        return saved, all_of(zero)

    def load():
        zero = in_16_bits(loading)
        checkpoint.load(zero, tmp_path)
        loaded = all_of(zero)
        train(zero, half, 1)
        return loaded, all_of(zero)

    saved, went_on = launch(save, 2).results[0]
    assert {entry["vectors"]["weight"].dtype for entry in saved[1][0].values()} == {torch.float32}
    for loaded, after in launch(load, 3).results:
        assert_same(loaded, saved)
        assert_same(after, went_on, atol=1e-4)  # gradients have 16 bits


@pytest.mark.parametrize("stage, units", [(ZeROOffload, {}), (ZeROInfinity, {"units": linear})])
def test_from_a_disk_to_a_checkpoint_and_back(stage, units, tmp_path):
    def on_disk(module, *given, **options):
        return stage(module, *given, offload_device=NVMeOffload(tmp_path / "home"), **units, **options)

    saved = launch(saved_by, 3, on_disk, "AdamW", tmp_path / "saved").results[0]
    for rung in (on_disk, stage_1):
        for found in launch(loaded_by, 2, rung, "AdamW", tmp_path / "saved").results:
            assert_same(found, saved)


# What a rank holds.

W, LAYERS, RANKS = 64, 4, 4
OWN = 12 * LAYERS * W * W // RANKS  # bytes: weight and two moments of this rank's shard


def test_a_rank_holds_its_own_shard_of_what_it_loads(tmp_path):
    """By the ledger: while loading, a second set of its own 12/p bytes a parameter, and never all of them."""

    def deep():
        return stage_3(nn.Sequential(*(nn.Linear(W, W, bias=False) for _ in range(LAYERS))))

    def save():
        zero = deep()
        zero.module(torch.ones(1, W)).sum().backward()
        zero.step()
        checkpoint.save(zero, tmp_path)

    def load(loads):
        zero = deep()
        before = len(observed.programs[torch.distributed.get_rank()]) if observed else 0
        if loads:
            checkpoint.load(zero, tmp_path)
        return before

    observed = None
    tinydist.launch(save, RANKS)
    built, loading = (tinydist.launch(load, RANKS, loads) for loads in (False, True))
    for rank in range(RANKS):
        start = len(built.memory[rank].changes)
        base = sum(list(built.memory[rank].over_time())[-1][1].values())
        moments = [sum(held.values()) for _, held in loading.memory[rank].over_time()][start:]
        assert OWN <= max(moments) - base < OWN + 1000, "its own, and some counts"


# What is not whole.


def tries(rung, folder):
    """What loading says, and whether anything has changed."""
    zero = rung(Small(), lr=0.5)
    train(zero, everything, steps=1)
    before = all_of(zero)
    try:
        checkpoint.load(zero, folder)
    except CheckpointError as error:
        assert_same(all_of(zero), before)
        return str(error)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    launch(saved_by, 3, stage_3, "AdamW", folder)
    return folder


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def assert_all_refuse(folder, rung, ranks):
    said = launch(tries, ranks, rung, folder).results
    assert said[0] and said == [said[0]] * ranks, "each rank raises, with the same reason"
    assert "load failed; no rank was modified. On rank" in said[0]


@given(some.data(), some.sampled_from([1, 2, 3, 4]), rungs)
def test_any_byte_that_is_another_is_an_error_on_all_ranks(saved, data, ranks, rung):
    path = data.draw(some.sampled_from(files_of(saved)))
    whole = path.read_bytes()
    place, other = data.draw(some.integers(-len(whole), len(whole) - 1)), data.draw(some.integers(1, 255))
    place %= len(whole)  # small numbers are drawn often: the beginning, where names are, and the end, where numbers are
    path.write_bytes(whole[:place] + bytes([whole[place] ^ other]) + whole[place + 1 :])
    try:
        assert_all_refuse(saved, rung, ranks)
    finally:
        path.write_bytes(whole)


@pytest.mark.exhaustive
def test_every_byte_matters(saved):
    """To one process, which is quick."""
    for path in files_of(saved):
        whole = path.read_bytes()
        for place in range(len(whole)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            assert tries(stage_0, saved), f"byte {place} of {path}"
        path.write_bytes(whole)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("how", ["removed", "cut", "longer", "a folder"])
def test_a_file_that_is_not_as_it_was_is_an_error_on_all_ranks(saved, number, how, ranks, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "copy")
    path = files_of(folder)[number]
    whole = path.read_bytes()
    path.unlink()
    if how == "a folder":
        path.mkdir()
    elif how != "removed":
        path.write_bytes(whole[:-1] if how == "cut" else whole + b"\n")
    assert_all_refuse(folder, stage_2, ranks)


def test_a_folder_without_a_checkpoint(tmp_path):
    said = launch(tries, 2, stage_1, tmp_path).results
    assert f"{tmp_path} has no checkpoint.json: no checkpoint, or an incomplete one" in said[0]


def test_ranks_that_are_given_other_checkpoints(tmp_path):
    """Of the same training at the same step: only which save it is differs."""
    for name in ("one", "two"):
        launch(saved_by, 2, stage_1, "AdamW", tmp_path / name)
    said = launch(lambda: tries(stage_1, tmp_path / ("two" if torch.distributed.get_rank() == 2 else "one")), 4).results
    assert "On rank 2: it was given another checkpoint than rank 0" in said[3] and len({*said}) == 1


# Saves that fail.


def disk_is_full(path):
    """Of rank 1."""
    if path.name == "rank-1.safetensors":
        path.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def index_does_not_reach_the_disk(path):
    if path.name == "checkpoint.json":
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


def weight_is_nan(zero):
    if torch.distributed.get_rank() == 1:
        zero.buckets[0].master[0] = float("nan")


def fails_to_save(folder, harm):
    """And then goes back to what was saved before."""
    zero = stage_2(Small(), torch.optim.AdamW, lr=0.01, amsgrad=True)
    train(zero, everything, steps=2)
    harm(zero)
    with pytest.raises(CheckpointError) as caught:
        checkpoint.save(zero, folder)
    checkpoint.load(zero, folder)
    return str(caught.value), all_of(zero)


@pytest.mark.parametrize(
    "sync, harm, reason",
    [
        (disk_is_full, str, "On rank 1: OSError: [Errno 28] No space left on device"),
        (index_does_not_reach_the_disk, str, "On rank 0: OSError: [Errno 5] Input/output error"),
        (str, weight_is_nan, "On rank 1: weight of into.bias has non-finite values"),
    ],
)
def test_a_save_that_fails_leaves_the_one_before(sync, harm, reason, tmp_path, monkeypatch):
    before = launch(saved_by, 2, stage_3, "AdamW", tmp_path).results[0]
    monkeypatch.setattr(checkpoint_files, "_sync", sync)
    said, found = zip(*launch(fails_to_save, 3, tmp_path, harm).results)
    assert said[0].startswith("save failed; nothing was saved. " + reason) and len({*said}) == 1
    for each in found:
        assert_same(each, before)
    assert len(list(tmp_path.iterdir())) == 2, "the index, and the one save that it names"


def test_one_save_at_a_time(tmp_path):
    def program():
        with (
            checkpoint_files.new_save(tmp_path),
            pytest.raises(CheckpointError, match=r"another save to .* is in progress"),
        ):
            checkpoint.save(stage_1(Small()), tmp_path)
        checkpoint.save(stage_1(Small()), tmp_path)

    launch(program, 1)


def test_the_files_of_a_save_before_are_gone(tmp_path):
    for steps in (1, 2):
        launch(saved_by, 4 - steps, stage_1, "AdamW", tmp_path, steps)
    index = json.loads((tmp_path / "checkpoint.json").read_text().splitlines()[0])
    found = sorted(str(path.relative_to(tmp_path)) for path in files_of(tmp_path))
    assert found == ["checkpoint.json", *(f"{index['save']}/rank-{rank}.safetensors" for rank in range(2))]
