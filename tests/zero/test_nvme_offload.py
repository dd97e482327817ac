"""A disk is a folder of its own: nobody else writes there, and in the end it is gone."""

import gc
import os

import cloudpickle
import pytest
import torch
import torch.distributed as dist
from tiny_training import assert_every_rank_has, tiny_mlp
from zero.ladder import linear, mine, train, trained_alone, whole_weights

import tinydist
from tinydist.zero import NVMeOffload, OffloadError, ZeROInfinity


def kept(device, value):
    tensor = torch.full((3,), value)
    device.evict(tensor)
    return tensor


def read(device, tensor):
    with device.in_memory(lambda: [tensor], changed=False):
        return tensor.tolist()


def test_two_homes_in_one_folder_keep_to_themselves(tmp_path):
    one, two = NVMeOffload(tmp_path), NVMeOffload(tmp_path)
    first, second = kept(one, 1.0), kept(two, 2.0)
    assert read(one, first) == [1.0] * 3 and read(two, second) == [2.0] * 3


def test_two_trainings_in_one_folder_are_those_of_one_process(tmp_path):
    """As when a cell is run again while the training of before goes on."""

    def program():
        both = [
            ZeROInfinity(tiny_mlp(), lr=lr, offload_device=NVMeOffload(tmp_path), units=linear) for lr in (0.01, 0.02)
        ]
        for step in range(4):
            for zero in both:
                train(zero, lambda _, step=step: mine(step), steps=1)
        return [whole_weights(zero) for zero in both]

    for results, lr in zip(zip(*tinydist.launch(program, 2).results), (0.01, 0.02)):
        assert_every_rank_has(trained_alone(tiny_mlp, options={"lr": lr}), results)


@pytest.mark.parametrize("end", [lambda device: device.close(), lambda device: None], ids=["closed", "collected"])
def test_its_folder_is_gone_when_it_is(end, tmp_path):
    device = NVMeOffload(tmp_path)
    kept(device, 1.0)
    assert len(list(device.folder.iterdir())) == 1
    end(device)
    del device
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_its_folder_is_gone_at_the_end_of_the_run(tmp_path):
    """Whatever still has it."""
    results = tinydist.launch(trains_on_a_disk, 2, tmp_path).results
    assert [there for there, _ in results] == [2, 2]
    assert list(tmp_path.iterdir()) == []


def trains_on_a_disk(folder):
    zero = ZeROInfinity(tiny_mlp(), offload_device=NVMeOffload(folder), units=linear)
    train(zero, mine, steps=1)
    there = len(list(folder.iterdir()))
    dist.barrier()
    return there, zero


def test_what_is_closed_cannot_be_read(tmp_path):
    device = NVMeOffload(tmp_path)
    tensor = kept(device, 1.0)
    device.close()
    with pytest.raises(OffloadError, match="cannot read a shard of 12 bytes: No such file or directory"):
        read(device, tensor)


def test_a_link_is_not_written_through(tmp_path):
    other = tmp_path / "other"
    other.write_text("of somebody else")
    device = NVMeOffload(tmp_path)
    (device.folder / "tensor 1").symlink_to(other)
    with pytest.raises(OffloadError, match="cannot write 12 bytes: File exists"):
        kept(device, 1.0)
    assert other.read_text() == "of somebody else"


def test_another_process_gets_a_folder_of_its_own(tmp_path):
    device = NVMeOffload(tmp_path)
    copy = cloudpickle.loads(cloudpickle.dumps(device))
    assert copy.folder != device.folder and copy.folder.parent == tmp_path
    kept(device, 1.0)
    with pytest.raises(TypeError, match="an NVMeOffload with offloaded tensors cannot be copied to another process"):
        cloudpickle.dumps(device)


def test_nobody_else_may_look_into_it(tmp_path):
    assert os.stat(NVMeOffload(tmp_path).folder).st_mode & 0o077 == 0
