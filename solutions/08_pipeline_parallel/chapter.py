"""What the exercises of this chapter share: their order and their notebook's beginning; results with variants."""

ORDER = ["gpipe", "one_f_one_b", "best_pipeline", "mended_pipeline"]

INTRODUCTION = """\
# Exercises: pipeline parallel

[Notebook 08](../notebooks/08_pipeline_parallel.ipynb) goes before these. You write schedules as what each rank does: \
GPipe with recomputation, and 1F1B where messages take time; choose stages, replicas and microbatches for a number of \
GPUs, which is arithmetic; and mend a worker that executes a schedule. Neither the schedules of \
`tinydist.pipeline_parallel`, nor its `find_schedule`, nor `torch.distributed.pipelining` are allowed; `verify` and \
`analyze` are. Four exercises, about 90 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function is asked for the \
actions of every rank, for pipelines of several sizes. They are verified, and judged on the makespan, the bubble and \
what is held. The first property that does not hold is explained, and drawn where a picture helps.

**Hint.** `hint(gpipe)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check gpipe` checks, `hint \
gpipe` gives a hint, and `reset gpipe` puts the stub back.

P is the number of ranks, M that of microbatches; F and B are the seconds of a rank's \
forward and backward of a microbatch. An action is text: `2F0` is stage 2, forward, microbatch 0."""

IMPORTS = """\
from math import ceil

import torch
import torch.distributed as dist
import torch.nn.functional as F"""
