"""05_data_parallel: every rank has the model, and a part of the batch.

gradients.py               what gradients should be, and what wrong ones come from
own_work.py                what may be used
averaging.py               the mean over samples that are not spread evenly
layers.py                  small models, in buckets
step_time.py               how long a step takes if it overlaps
kept.py                    what a step keeps for the next ones
overlap.py                 buckets that travel during backward
accumulation_mistakes.py   what wrong sums over microbatches come from
accumulation.py            several microbatches, one reduction
watched_training.py        what a training loop should make of its samples
mended_training.py         a training loop with four bugs
traffic.py                 what DP and DDP send, predicted
"""

from . import averaging as averaging  # isort: skip
from . import overlap as overlap  # isort: skip
from . import accumulation as accumulation  # isort: skip
from . import mended_training as mended_training  # isort: skip
from . import traffic as traffic  # isort: skip
