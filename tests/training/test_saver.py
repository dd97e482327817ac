"""A thread writes while training goes on; what it has written becomes the checkpoint when all ranks have."""

import shutil
import threading

import pytest
import torch.distributed as dist
from training.small_runs import losses, made

import tinydist
from tinydist.checkpoint import files
from tinydist.checkpoint.rules import CheckpointError
from tinydist.training import Plan
from tinydist.training.checkpoint import load
from tinydist.training.saver import Saver

PLAN = Plan(dp=2, zero=1)


class Gate:
    """Behind which this rank's thread waits until it is opened; or it fails there."""

    def __init__(self, error=None):
        self.gate, self.error, self.write = threading.Event(), error, files.write
        files.write = self

    def __call__(self, *what):
        assert threading.current_thread() is not threading.main_thread()
        self.gate.wait()
        if self.error:
            raise self.error
        return self.write(*what)

    def open(self):
        self.gate.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.open()
        files.write = self.write


def in_folder(folder):
    return files.read_index(folder)["step"] if (folder / files.INDEX).exists() else None


def published_by_all(folder):
    """Which step is there, once all ranks have come here."""
    dist.barrier()
    found = in_folder(folder)
    dist.barrier()
    return found


def test_training_goes_on_while_a_thread_writes(tmp_path):
    """What is saved is what was there when it was requested; and it is there when all have written it."""

    def program():
        engine, seen = made(PLAN), []
        losses(engine, [0])
        with Gate() as gate, Saver(engine, tmp_path / "run") as saver:
            saver.save()
            if dist.get_rank() == 0:
                gate.open()
                saver.written.result()
            after = losses(engine, [1, 2])  # while the other rank has written nothing
            saver.poll()
            seen.append(published_by_all(tmp_path / "run"))
            gate.open()
            saver.written.result()
            dist.barrier()
            saver.poll()
            seen.append(published_by_all(tmp_path / "run"))
            if dist.get_rank() == 0:
                shutil.copytree(tmp_path / "run", tmp_path / "first")
            saver.save()
            saver.save(step=9)  # which ends the one before
            seen.append(published_by_all(tmp_path / "run"))
        seen.append(published_by_all(tmp_path / "run"))
        load(engine, tmp_path / "first")
        return seen, losses(engine, [1, 2]) == after

    assert tinydist.launch(program, 2, backend="gloo").results == [([None, 1, 3, 9], True)] * 2


def test_a_thread_that_fails_is_heard_on_all_ranks_in_the_next_call(tmp_path):
    def program():
        engine = made(PLAN)
        with Gate(OSError(28, "No space left on device") if dist.get_rank() else None) as gate:
            gate.open()
            with Saver(engine, tmp_path) as saver:
                saver.save()
                with pytest.raises(CheckpointError) as caught:
                    saver.save()
                assert saver.saving is None
        with Saver(engine, tmp_path) as saver:
            saver.save(step=5)
        return str(caught.value), published_by_all(tmp_path), len(list(tmp_path.iterdir()))

    reason = "On rank 1: OSError: [Errno 28] No space left on device"
    said = f"save failed; nothing was saved. {reason}"
    assert tinydist.launch(program, 2, backend="gloo").results == [(said, 5, 2)] * 2


def test_who_leaves_by_an_exception_leaves_the_checkpoint_before(tmp_path):
    def program():
        engine = made(PLAN)
        with pytest.raises(FloatingPointError), Saver(engine, tmp_path) as saver:
            saver.save(step=1)
            saver.end()
            saver.save(step=2)
            raise FloatingPointError
        return published_by_all(tmp_path), len(list(tmp_path.iterdir()))

    assert tinydist.launch(program, 2, backend="gloo").results == [(1, 2)] * 2


def test_simulated_ranks_save_at_once(tmp_path):
    def program():
        engine = made(PLAN)
        saver = Saver(engine, tmp_path)
        saver.save(step=3)
        return in_folder(tmp_path), saver.thread

    assert tinydist.launch(program, 2).results == [(3, None)] * 2


def test_asking_whether_all_have_written_is_one_number(tmp_path):
    """And only while something is being written."""

    def program():
        engine = made(PLAN)
        saver, asked, all_reduce = Saver(engine, tmp_path), [], dist.all_reduce
        dist.all_reduce = lambda tensor, *how: (asked.append(tensor.numel()), all_reduce(tensor, *how))
        try:
            saver.poll()
            with Gate() as gate, saver:
                saver.save()
                saver.poll()
                saver.poll()
                gate.open()
            saver.poll()
        finally:
            dist.all_reduce = all_reduce
        return asked

    assert tinydist.launch(program, 2, backend="gloo").results == [[1, 1]] * 2
