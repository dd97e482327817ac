"""Checkpoints while training goes on: the state is copied, a thread writes it, and later all ranks agree that it is it.

    rank 0    copy | step | step | step | all written? publish | step
    thread         ------ writes ------>
    rank 1    copy | step | step | step | all written?         | step
    thread         -- writes -->

Training waits for the copy alone: 12 bytes of each of a rank's N/(pp tp shard) parameters, for Adam, which the host's
memory holds until they are written. The thread communicates with nobody. Whether all have written is asked once a step,
by an all-reduce of one number, as long as something is being written.

Simulated ranks save at once: their threads may not run beside one another.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

from ..checkpoint.save_load import Saving
from ..rules import takes, whole
from ..torch_internals import device_of_group
from .checkpoint import Run
from .engine import Engine


@takes(engine=Engine, folder=str | os.PathLike)
class Saver:
    """All ranks call all of it.

        with Saver(engine, folder) as saver:
            for step in range(steps):
                engine.step(...)
                saver.poll()
                if step % 100 == 99:
                    saver.save()

    save    begins; what is still being written is ended first
    poll    is it written, on all ranks? Then from now on it is the checkpoint
    end     waits for it

    Raises ``CheckpointError`` on all ranks, in the next call, if one of them has failed to write; then the folder is as
    before. Whoever leaves by an exception leaves what was being written unfinished.
    """

    def __init__(self, engine, folder):
        self.engine, self.folder = engine, folder
        self.thread = None if dist.get_backend() == "simulated" else ThreadPoolExecutor(1)
        self.saving = self.written = None

    @takes(step=whole)
    def save(self, step=None, extra=None):
        self.end()
        saving = Saving(Run(self.engine, step, extra), self.folder)
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
