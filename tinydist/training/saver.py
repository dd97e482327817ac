"""Asynchronous checkpoints: the state is copied, a background thread writes it, and all ranks commit it later.

    rank 0    copy | step | step | step | all written? publish | step
    thread         ------ writes ------>
    rank 1    copy | step | step | step | all written?         | step
    thread         -- writes -->

Training only waits for the copy: 12 bytes for each of a rank's N/(pp tp shard) parameters, with Adam, which stay in
host memory until they are written. The thread does not communicate. While a save is in progress, an all-reduce of one
number per step checks whether all ranks have finished.

Simulated ranks save synchronously: their threads must not run concurrently.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

from ..checkpoint.save_load import Saving
from ..rules import validate, whole
from ..torch_internals import device_of_group
from .checkpoint import EngineState
from .engine import Engine


@validate(engine=Engine, folder=str | os.PathLike)
class Saver:
    """All ranks call all of it.

        with Saver(engine, folder) as saver:
            for step in range(steps):
                engine.step(...)
                saver.poll()
                if step % 100 == 99:
                    saver.save()

    save    start a save, after waiting for the previous one
    poll    commit the save if all ranks have written it
    end     wait for it and commit

    Raises ``CheckpointError`` on all ranks, in the next call, if one of them has failed to write; then the folder is as
    before. If the context exits with an exception, the current save is abandoned.
    """

    def __init__(self, engine, folder):
        self.engine, self.folder = engine, folder
        self.thread = None if dist.get_backend() == "simulated" else ThreadPoolExecutor(1)
        self.saving = self.written = None

    @validate(step=whole)
    def save(self, step=None, extra=None):
        self.end()
        saving = Saving(EngineState(self.engine, step, extra), self.folder)
        if self.thread:
            self.saving, self.written = saving, self.thread.submit(saving.write)
        else:
            saving.end(saving.write)

    def poll(self):
        if self.saving:
            done = torch.tensor(float(self.written.done()), device=device_of_group())
            dist.all_reduce(done, dist.ReduceOp.MIN)
            if done:
                self.end()

    def end(self):
        if self.saving:
            saving, self.saving = self.saving, None
            saving.end(self.written.result)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.end()
        finally:
            if self.thread:
                self.thread.shutdown()
            if self.saving:
                self.saving.give_up()
