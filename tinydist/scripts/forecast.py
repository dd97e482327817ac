"""The forecast of ``tinydist run --fake``: what a step of the script takes, holds and sends at its real size.

    forecast: 302 ms a step (mean of 3, without the first), 57% of the FLOP/s peak, on 1 x 8 A100 80GB ...
    memory: at most 15.5 GB of 80.0 GB in tensors, on rank 0
    unknown: train.py, line 323: lossf = loss.item() * gradient_accumulation_steps

A step ends where an optimizer's does. What cannot be right is refused: a rate above the peak, matmuls without a FLOP,
ranks that send nothing.
"""

from typing import NamedTuple

from ..console.quantities import bytes_text, seconds_text
from ..tracing.record import Operator

# benchmarks/published.py: the least and the greatest mean of its measured sets, and the worst row; nanoGPT: the
# table in docs/your_own_program.md.
OFF_BY = (
    "the planner, which has the same costs, misses published steps by 3 to 11 % on average, the worst by 40 %; "
    "a forecast of an eager script, nanoGPT's, was 29 to 43 % too fast"
)


class Step(NamedTuple):
    """Of one rank, on average."""

    seconds: float
    flops: float
    share: float  # of the time that its matmuls take at the peak of their dtype
    sent: float  # bytes
    count: int


class NoForecast(RuntimeError):
    """What was run is no step of training."""


def step_of(run, rank=0):
    """The steps of a rank but the first, which also sets up; raises NoForecast where they cannot be right."""
    ends = [each for each in run.memory[rank].named if each.name.startswith("Optimizer.step")]
    if len(ends) < 2:
        raise NoForecast(
            f"no forecast: the script has made {len(ends)} optimizer step{'s' * (len(ends) != 1)}. It needs two or "
            "more: the first one sets up. Let it make a few"
        )
    first, last, count = ends[0], ends[-1], len(ends) - 1
    seconds = (last.end - first.end) / count
    operators = [
        entry
        for entry in run.record.programs[rank][first.last : last.last]
        if isinstance(entry, Operator) and entry.flops
    ]
    flops = sum(each.flops for each in operators) / count
    at_peak = sum(each.flops / run.cluster.device.peak_of(each.dtype) for each in operators) / count
    sent = sum(run.between(first.end, last.end).traffic[rank]) / count
    step = Step(seconds, flops, at_peak / seconds if seconds else 0.0, sent, count)
    check(step, run)
    return step


def check(step, run):
    if not step.flops:
        raise NoForecast("no forecast: the steps have no matmul, convolution or attention. Is every batch empty?")
    if step.share > 1:
        raise NoForecast(
            f"no forecast: the steps would run at {step.share:.0%} of the FLOP/s peak of {run.cluster.device}"
        )
    if len(run.results) > 1 and not step.sent:
        raise NoForecast(
            f"no forecast: {len(run.results)} ranks send nothing in a step. Is the model wrapped, in DDP or FSDP?"
        )


def forecast(run):
    """Lines."""
    step = step_of(run)
    device = run.cluster.device
    fullest = max(run.memory, key=lambda held: held.peak)
    lines = [
        f"forecast: {seconds_text(step.seconds)} a step (mean of {step.count}, without the first), {step.share:.0%} of "
        f"the FLOP/s peak, on {run.cluster}",
        f"memory: at most {bytes_text(fullest.peak)} of {bytes_text(device.memory)} in tensors, on rank {fullest.rank}",
        f"error: {OFF_BY}",
    ]
    return lines + [f"unknown: {site}" for site in run.record.reads]
