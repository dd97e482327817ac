"""What the exercises of this chapter share: their order and their notebook's beginning."""

ORDER = ["interleaved", "least_bubble", "end_of_step", "missing_seconds"]

INTRODUCTION = """\
# Exercises: pipeline schedules

[Notebook 08b](../notebooks/08b_pipeline_schedules.ipynb) goes before these. You write schedules as what each rank \
does: interleaved 1F1B, and the one with the least bubble in a given memory. Then come two that are arithmetic: what \
the end of a step costs, and what measured steps have that calculated ones have not. Neither the schedules of \
`tinydist.pipeline_parallel`, nor its `find_schedule`, nor `torch.distributed.pipelining` are allowed; `verify` and \
`analyze` are, in the first two. Four exercises, about 105 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. In the first two your function is \
asked for the actions of every rank, for pipelines of several sizes. They are verified, and judged on the makespan, \
the bubble and what is held. The first property that does not hold is explained, and drawn where a picture helps.

**Hint.** `hint(interleaved)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check interleaved` checks, `hint \
interleaved` gives a hint, and `reset interleaved` puts the stub back.

P is the number of ranks, M that of microbatches, v that of stages per rank; F and B are the seconds of a rank's \
forward and backward of a microbatch. An action is text: `2F0` is stage 2, forward, microbatch 0."""

IMPORTS = """\
from itertools import islice

import torch"""
