"""The CSV format of torch.distributed.pipelining's schedules: a line per rank, a cell per step.

    0F0,0F1,0B0,,0B1        an empty cell is a step in which torch draws the rank as idle: it is dropped
    ,1F0,1B0,1F1,1B1

``_PipelineScheduleRuntime(stages, M, loss_fn)._load_csv(path)`` runs what ``save`` writes; ``load`` reads what its
``_dump_csv`` writes, with messages or without. Of UNSHARD, RESHARD and REDUCE_GRAD, which are FSDP's, nothing is
kept, nor of the waits of torch 2.15; ``save`` ends a line with those for its sends. It writes REDUCE_GRAD, without
which torch's gradients are no mean where messages are given, but not R, NORM, CHECK, STEP, which torch has not.
"""

import csv
import re
from pathlib import Path

from ..rules import each_of, many, must, several, validate
from ..torch_internals import pipeline_kinds
from .schedule import OVERLAP, Overlap, Schedule, parse

NOT_KEPT = re.compile(r"\d+(UNSHARD|RESHARD|(WAIT_)?REDUCE_GRAD|WAIT_SEND_[FB])\d*")


def save(schedule, path):
    torchs = pipeline_kinds()
    with open(path, "w", newline="") as file:
        programs = [[each for each in program if kind_of(each) in torchs] for program in schedule.programs]
        csv.writer(file, lineterminator="\n").writerows(program + waits(program) for program in programs)


def kind_of(each):
    return OVERLAP if isinstance(each, Overlap) else each.kind


def waits(program):
    """For each send of a rank, as torch's runtime wants it."""
    sends = [str(each) for each in program if "SEND" in str(each)] if "WAIT_SEND_F" in pipeline_kinds() else []
    return [send.replace("SEND", "WAIT_SEND") for send in sends]


def load(path, name=None) -> Schedule:
    """The schedule of a file, to be verified. Raises ``ValueError`` for a cell that is no action."""
    with open(path, newline="") as file:
        return from_rows(csv.reader(file), name or Path(path).stem)


@validate(rows=several, name=str)
def from_rows(rows, name) -> Schedule:
    """From cells of text, or torch's own actions: ``get_schedule_ops`` has those of a schedule."""
    programs = []
    for rank, row in enumerate(must("from_rows", "rows", each_of(many, 0), list(rows))):
        cells = [(step, str(cell).strip()) for step, cell in enumerate(row) if cell is not None]
        programs.append(tuple(at(rank, *cell) for cell in cells if cell[1] and not NOT_KEPT.fullmatch(cell[1])))
    parts = [part for program in programs for each in program for part in each.parts]
    if not parts:
        raise ValueError(f"{name}: it contains no actions")
    stages, microbatches = (1 + max(part[field] for part in parts) for field in (0, 2))
    return Schedule(name, tuple(programs), stages, microbatches)


def at(rank, step, cell):
    try:
        return parse(cell)
    except ValueError as error:
        raise ValueError(f"rank {rank}, step {step}: {error}") from None
