"""The training loop, the same for every parallel configuration.

    a step      this data rank's rows -> engine.step, at the rate of the step -> a StepMetrics
    now and then   the loss on held-out windows; a checkpoint
    always      a progress bar on rank 0: loss, tokens/s, MFU, peak memory

Its only state is the step: learning rates (lr_schedules.py) and data (data.py) are functions of it. So it resumes from
a checkpoint in ``folder`` on any mesh.
"""

import math
import sys
import time
from contextlib import ExitStack, contextmanager, nullcontext
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from tqdm import tqdm

from ..annotate import region
from ..checkpoint.files import INDEX
from ..checkpoint.rules import CheckpointError
from ..collectives.agreement import numbers_of_root
from ..rules import count, each_of, function, positive, validate, whole
from ..torch_internals import device_of_group
from .checkpoint import load
from .data import Batches, broadcast_data
from .mesh import data_rank, place_in
from .meters import peak_flops, peak_memory
from .run_folder import check_same_run, only_run_in
from .saver import Saver

NAMES = "tokens", "targets"


class StepMetrics(NamedTuple):
    """Metrics of a step; the same on every rank, except time, values derived from it, and memory."""

    step: int  # from 0
    loss: float  # nats per token, the mean over the global batch
    norm: float | None  # of all gradients, before they are clipped
    rate: float | None
    applied: bool  # False: skipped, for an overflow in fp16
    seconds: float
    tokens_per_second: float  # of all ranks
    mfu: float | None
    memory: tuple | None  # the most bytes so far, and of what: Peak
    held_out: float | None = None  # the loss on held-out windows, where it was asked

    def in_words(self):
        said = {"loss": f"{self.loss:.4f}", "tokens/s": f"{self.tokens_per_second:,.0f}"}
        if self.mfu is not None:
            said["MFU"] = f"{self.mfu:.1%}"
        if self.memory:
            said[f"peak of the {self.memory.of}"] = str(self.memory)
        if self.held_out is not None:
            said["held out"] = f"{self.held_out:.4f}"
        return said


class History(list):
    """A ``StepMetrics`` for each step."""

    @property
    def losses(self):
        return [state.loss for state in self]


@validate(batches=Batches, steps=whole, rate=function, validation=Batches, evaluate_every=count, evaluations=count)
@validate(
    folder=str | PathLike, save_every=count, flops=positive, on_step=function, run=dict, allow_change=each_of(str, 0)
)
def train(
    engine,
    batches,
    steps,
    rate=None,
    validation=None,
    evaluate_every=None,
    evaluations=8,
    folder=None,
    save_every=None,
    flops=None,
    on_step=None,
    stream=None,
    run=None,
    allow_change=(),
):
    """Train until ``steps`` steps in total, resuming from the checkpoint in ``folder``. Returns a History.

    rate:         step -> learning rate (lr_schedules.py); None: as the optimizer was made.
    validation:   Batches of held-out tokens, of whose first ``evaluations`` the loss is the mean: every
                  ``evaluate_every`` steps, and after the last.
    folder:       where checkpoints are: every ``save_every`` steps, and after the last.
    flops:        of a token, for MFU (``flops_per_token``).
    on_step:      is called with each StepMetrics.
    stream:       of the progress bar, which a terminal shows. None: stderr.
    run:          what defines the run, name -> value, for JSON. A checkpoint of a run with other values is refused
                  (run_folder.py), but for the names in ``allow_change``.

    Raises ``FloatingPointError`` on every rank if the loss of a step is not finite. However it ends, a checkpoint is
    complete or absent.
    """
    history = History()
    with ExitStack() as until_the_end:
        if folder:
            until_the_end.enter_context(alone_in(folder))
        begin = resume(engine, folder, run, allow_change)
        saver = folder and until_the_end.enter_context(Saver(engine, folder))
        bar = until_the_end.enter_context(progress_bar(steps, begin, stream))
        meter = Meter(engine.plan, flops)
        for step in range(begin, steps):
            last = step + 1 == steps
            with region("step"):
                state = take(engine, batches, step, rate and rate(step), meter)
            if validation and (last or is_due(step, evaluate_every)):
                state = state._replace(held_out=held_out_loss(engine, validation, evaluations))
            history.append(state)
            bar.set_postfix(state.in_words(), refresh=False)
            bar.update()
            if on_step:
                on_step(state)
            if saver:
                saver.poll()
            if saver and (last or is_due(step, save_every)):
                saver.save(step + 1, run)
            meter.begin()
    return history


def resume(engine, folder, run=None, allow_change=()):
    """Load the latest checkpoint, if rank 0 finds one. Returns the step to resume from."""
    there = [folder is not None and Path(folder, INDEX).exists()]
    if not numbers_of_root(there, device_of_group())[0]:
        return 0
    step, saved = load(engine, folder)
    check_same_run(folder, step, saved or {}, run or {}, allow_change)
    return step


@contextmanager
def alone_in(folder):
    """Rank 0 locks the folder. Raises ``CheckpointError`` on all ranks if another run has it."""
    with only_run_in(folder) if dist.get_rank() == 0 else nullcontext() as holder:
        told = [holder]
        dist.broadcast_object_list(told)
        if told[0]:
            raise CheckpointError(
                f"train: {told[0]} is a run with its checkpoints in {folder}, and a second one would replace them"
            )
        yield


def is_due(step, every):
    return every is not None and (step + 1) % every == 0


def progress_bar(steps, begin, stream):
    """A progress bar on rank 0, if the stream is a terminal."""
    mine = dist.get_rank() == 0 and (stream or sys.stderr).isatty()
    return tqdm(total=steps, initial=begin, unit="step", file=stream, dynamic_ncols=True, disable=not mine)


def take(engine, batches, step, rate, meter):
    tokens, targets = rows_of(engine, batches, step)
    done = engine.step(tokens, targets, lr=rate)
    if done.applied and not math.isfinite(done.loss):
        raise FloatingPointError(
            f"train: the loss of step {step} is {done.loss} (rank {dist.get_rank()}), the norm of its gradients "
            f"{done.norm}, the learning rate {rate}"
        )
    measured = meter.read(batches.batch * batches.length(step))
    return StepMetrics(step, done.loss, done.norm, rate, done.applied, *measured)


def held_out_loss(engine, validation, most):
    """Validation loss: the mean over the first batches of ``validation``, each window once."""
    number = max(1, min(most, validation.windows // validation.batch))
    return sum(engine.evaluate(*rows_of(engine, validation, step)) for step in range(number)) / number


def rows_of(engine, batches, step):
    """Tokens and targets of this data rank. Between the first and the last stage only their shape counts."""
    plan, mesh = engine.plan, engine.mesh
    if not engine.stages.keys() & {0, plan.stages - 1}:
        return torch.empty(batches.batch // plan.dp, batches.length(step), dtype=torch.int64, device="meta"), None
    rank = data_rank(plan, place_in(mesh))
    found = broadcast_data(lambda: dict(zip(NAMES, batches.rows(step, rank, plan.dp))), mesh.get_group("tp"))
    return [found[name].to(device_of_group()) for name in NAMES]


class Meter:
    """Measures the time between two calls of ``begin``, excluding evaluation and checkpoints."""

    def __init__(self, plan, flops):
        peak = flops and peak_flops(plan.precision)
        self.mfu_of_rate = flops / (plan.ranks * peak) if peak else None
        self.begin()

    def begin(self):
        self.begun = time.perf_counter()

    def read(self, tokens):
        """seconds, tokens a second, MFU, memory"""
        seconds = time.perf_counter() - self.begun
        rate = tokens / seconds
        return seconds, rate, self.mfu_of_rate and rate * self.mfu_of_rate, peak_memory()
