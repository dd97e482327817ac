"""06_zero: one ladder from DDP to fully sharded, a rung an exercise.

own_work.py           what may be used
held.py               what a rank holds
adam_mistakes.py      Adam on all ranks' gradients, and what mistakes lead to
sharded_adam.py       stage 1: the optimizer's states
chain.py              layers whose gradients are larger than their activations
gradient_mistakes.py  what mistakes in freeing gradients lead to
sharded_gradients.py  layers of which a rank has shards of gradients
shard_gradients.py    stage 2: gradients freed in backward
gathered_layers.py    layers of which a rank has shards
linear_mistakes.py    what mistakes in gathering weights lead to
sharded_linear.py     stage 3: a layer, gathered and freed
resumed_training.py   what the given training loop should come to
fsdp_mistakes.py      what its bugs, and others, lead to
fsdp_bytes.py         what it may hold and send
mended_fsdp.py        a training loop with four bugs
measured.py           what the stages hold and send
plan_mistakes.py      what wrong plans come from
cheapest_stage.py     which one to take, predicted
"""

from . import sharded_adam as sharded_adam  # isort: skip
from . import shard_gradients as shard_gradients  # isort: skip
from . import sharded_linear as sharded_linear  # isort: skip
from . import mended_fsdp as mended_fsdp  # isort: skip
from . import cheapest_stage as cheapest_stage  # isort: skip
