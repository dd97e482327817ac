"""Homes and checkpoints on real processes: the same as on simulated ranks."""

import gc

import pytest
import torch
import torch.distributed as dist
from checkpoint.small_checkpoints import Small, loaded_by, saved_by
from zero.ladder import all_of, assert_same, stage_0, stage_1, stage_2, stage_3
from zero.test_nvme_offload import trains_on_a_disk

import tinydist
from tinydist import checkpoint
from tinydist.checkpoint.rules import CheckpointError


def test_they_load_what_simulated_ranks_saved_and_the_reverse(tmp_path):
    saved = tinydist.launch(saved_by, 3, stage_3, "AdamW", tmp_path).results[0]

    def both():
        loaded = loaded_by(stage_2, "AdamW", tmp_path)
        return loaded, saved_by(stage_2, "AdamW", tmp_path / "again", steps=2)

    loaded, again = zip(*tinydist.launch(both, 2, backend="gloo").results)
    for each in loaded:
        assert_same(each, saved)
    for each in tinydist.launch(loaded_by, 3, stage_1, "AdamW", tmp_path / "again").results:
        assert_same(each, again[0])


def test_one_that_must_refuse_takes_the_other_with_it():
    def program():
        zero = stage_0(Small())
        state, before = checkpoint.sharded(zero), all_of(zero)
        states = [None] * 2
        dist.all_gather_object(states, state)
        if dist.get_rank() == 1:
            states[0]["parameters"]["scale"]["vectors"]["weight"].fill_(torch.nan)
        with pytest.raises(CheckpointError) as caught:
            checkpoint.load(zero, *states)
        assert_same(all_of(zero), before)
        return str(caught.value)

    reason = "On rank 1: weight of scale has non-finite values"
    said = tinydist.launch(program, 2, backend="gloo").results
    assert said == [f"load failed; no rank was modified. {reason}"] * 2


def test_the_folder_of_a_disk_is_gone_at_the_end_of_the_run(tmp_path):
    """A worker is kept for the next one."""

    def program():
        gc.disable()  # what still has it is not collected
        return trains_on_a_disk(tmp_path)[0]

    assert tinydist.launch(program, 2, backend="gloo").results == [2, 2]
    assert tinydist.launch(lambda: (gc.enable(), len(list(tmp_path.iterdir())))[1], 2, backend="gloo").results == [0, 0]
