"""Training: combined data, tensor, context, expert and pipeline parallelism, and a training loop.

mesh.py         the device mesh with five axes, and the slowest link of each
parallelize.py  applies a plan to a model; experts.py: to its experts
engine.py       a training step, with one optimizer step over all stages of a rank; evaluation
checkpoint.py   checkpoints that can be resharded to another mesh; saver.py: asynchronous saves
lr_schedules.py  learning-rate schedules; one_cycle.py: 1Cycle, with its momentum; range_test.py: how a peak is found
curriculum.py   sequences that grow longer
random_ltd.py   layers that drop random tokens; layer_drop.py: steps that drop random layers
tokens.py       memory-mapped token files
data.py         batches as a function of the step; one reader per tensor-parallel group
meters.py       FLOPs, MFU, peak memory
loop.py         the training loop
job.py          the train command's job on each rank; command.py: python -m tinydist train
expert_options.py  options of models with experts, by Megatron-LM's names
report.py       a step as files
compat/         programs and configurations of DeepSpeed and Megatron-LM, on this engine
"""

from ..plan import Plan
from .checkpoint import load, load_weights, save
from .compat.config import Config
from .compat.initialize import add_config_arguments, init_distributed, initialize
from .compat.model_engine import ModelEngine
from .data import Batches, broadcast_data
from .engine import Engine, Step
from .experts import LoadBalance
from .loop import History, StepMetrics, train
from .mesh import AXES, make_mesh, members, place_of
from .meters import flops_per_token
from .parallelize import parallelize
from .saver import Saver
from .tokens import TokenFile, encode, hold_out

__all__ = [
    "AXES",
    "Batches",
    "Config",
    "Engine",
    "History",
    "LoadBalance",
    "ModelEngine",
    "Plan",
    "Saver",
    "Step",
    "StepMetrics",
    "TokenFile",
    "add_config_arguments",
    "broadcast_data",
    "encode",
    "flops_per_token",
    "hold_out",
    "init_distributed",
    "initialize",
    "load",
    "load_weights",
    "make_mesh",
    "members",
    "parallelize",
    "place_of",
    "save",
    "train",
]
