"""A disk is a folder of its own: no other home writes there, and in the end it is gone."""

import gc
import os

import cloudpickle
import pytest
import torch
import torch.distributed as dist
from tiny_training import assert_every_rank_has, tiny_mlp
from zero.ladder import linear, mine, train, trained_alone, whole_weights

import tinydist
from tinydist.zero import Disk, Infinity, OffloadError


def kept(home, value):
    tensor = torch.full((3,), value)
    home.put_away(tensor)
    return tensor


def read(home, tensor):
    with home.at_work(lambda: [tensor], changed=False):
        return tensor.tolist()


def test_two_homes_in_one_folder_keep_to_themselves(tmp_path):
    one, two = Disk(tmp_path), Disk(tmp_path)
    first, second = kept(one, 1.0), kept(two, 2.0)
    assert read(one, first) == [1.0] * 3 and read(two, second) == [2.0] * 3


def test_two_trainings_in_one_folder_are_those_of_one_process(tmp_path):
    """As when a cell is run again while the training of before goes on."""

    def program():
        both = [Infinity(tiny_mlp(), lr=lr, home=Disk(tmp_path), units=linear) for lr in (0.01, 0.02)]
        for step in range(4):
            for zero in both:
                train(zero, lambda _, step=step: mine(step), steps=1)
        return [whole_weights(zero) for zero in both]

    for results, lr in zip(zip(*tinydist.launch(program, 2).results), (0.01, 0.02)):
        assert_every_rank_has(trained_alone(tiny_mlp, options={"lr": lr}), results)


@pytest.mark.parametrize("end", [lambda home: home.close(), lambda home: None], ids=["closed", "collected"])
def test_its_folder_is_gone_when_it_is(end, tmp_path):
    home = Disk(tmp_path)
    kept(home, 1.0)
    assert len(list(home.folder.iterdir())) == 1
    end(home)
    del home
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_its_folder_is_gone_at_the_end_of_the_run(tmp_path):
    """Whatever still has it."""
    results = tinydist.launch(trains_on_a_disk, 2, tmp_path).results
    assert [there for there, _ in results] == [2, 2]
    assert list(tmp_path.iterdir()) == []


def trains_on_a_disk(folder):
    zero = Infinity(tiny_mlp(), home=Disk(folder), units=linear)
    train(zero, mine, steps=1)
    there = len(list(folder.iterdir()))
    dist.barrier()
    return there, zero


def test_what_is_closed_cannot_be_read(tmp_path):
    home = Disk(tmp_path)
    tensor = kept(home, 1.0)
    home.close()
    with pytest.raises(OffloadError, match="a shard of 12 bytes is gone: No such file or directory"):
        read(home, tensor)


def test_a_link_is_not_written_through(tmp_path):
    other = tmp_path / "other"
    other.write_text("of somebody else")
    home = Disk(tmp_path)
    (home.folder / "tensor 1").symlink_to(other)
    with pytest.raises(OffloadError, match="12 bytes cannot be written: File exists"):
        kept(home, 1.0)
    assert other.read_text() == "of somebody else"


def test_another_process_gets_a_folder_of_its_own(tmp_path):
    home = Disk(tmp_path)
    copy = cloudpickle.loads(cloudpickle.dumps(home))
    assert copy.folder != home.folder and copy.folder.parent == tmp_path
    kept(home, 1.0)
    with pytest.raises(TypeError, match="a Disk that keeps something cannot be copied to another process"):
        cloudpickle.dumps(home)


def test_nobody_else_may_look_into_it(tmp_path):
    assert os.stat(Disk(tmp_path).folder).st_mode & 0o077 == 0
