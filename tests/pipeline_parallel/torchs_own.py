"""torch's own schedules, as it makes them for any number of ranks without any running."""

import logging
from itertools import count

from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

from tinydist.pipeline_parallel.torch_csv import from_rows

NAMES = {
    "GPipe": "GPipe",
    "1F1B": "1F1B",
    "interleaved 1F1B": "Interleaved1F1B",
    "looped BFS": "LoopedBFS",
    "ZB-H1": "InterleavedZeroBubble",
    "ZB-V": "ZBVZeroBubble",
    "DualPipeV": "DualPipeV",
}
logging.getLogger("torch.distributed.pipelining").setLevel(logging.ERROR)


def torchs(name, ranks, microbatches, stages_per_rank=None, with_messages=False):
    """The schedule that torch calls NAMES[name]. None: one stage a rank where torch knows no more, else two."""
    rows = get_schedule_ops(NAMES[name], ranks, microbatches, stages_per_rank, with_comms=with_messages)
    if name == "1F1B":
        rows = [forwards_in_turn([each for each in row if each]) for row in rows]
    return from_rows(rows, f"torch's {NAMES[name]}")


def forwards_in_turn(row):
    """In its table of 1F1B, not in what it executes, torch 2.13 counts the last rank's forwards from 1."""
    turn = count()
    return [each._replace(microbatch_index=next(turn)) if each.computation_type == "F" else each for each in row]
