"""Training: data, tensor and pipeline parallelism, composed of the library's own parts, and a loop that uses them.

plan.py         the size of each axis and what is chosen besides; every rule, with the equation that fails
mesh.py         ranks in four axes, and which link an axis lies on
parallelize.py  a model, by a plan, in one visible order
engine.py       a training step, in halves or whole: the stages of a rank step as one; evaluation
checkpoint.py   the whole state of a run, for any other mesh; saver.py: written while training goes on
rates.py        learning rates as functions of the step
tokens.py       text as files of tokens, mapped into memory
data.py         which of them a step trains on; one rank reads for its tensor group
meters.py       FLOPs, MFU, peak memory
loop.py         one loop for every configuration
job.py          what the options of a command say, and what each rank does; command.py: python -m tinydist train
report.py       a step as files
compat/         programs and configurations of DeepSpeed and Megatron-LM, on this engine
"""

from .checkpoint import load, load_weights, save
from .compat.config import Config
from .compat.initialize import add_config_arguments, init_distributed, initialize
from .compat.model_engine import ModelEngine
from .data import Batches, broadcast_data
from .engine import Engine, Step
from .loop import History, State, train
from .mesh import AXES, link_of, make_mesh, members, place_of
from .meters import flops_per_token
from .parallelize import parallelize
from .plan import Plan
from .saver import Saver
from .tokens import TokenFile, encode, hold_out

__all__ = [
    "AXES",
    "Batches",
    "Config",
    "Engine",
    "History",
    "ModelEngine",
    "Plan",
    "Saver",
    "State",
    "Step",
    "TokenFile",
    "add_config_arguments",
    "broadcast_data",
    "encode",
    "flops_per_token",
    "hold_out",
    "init_distributed",
    "initialize",
    "link_of",
    "load",
    "load_weights",
    "make_mesh",
    "members",
    "parallelize",
    "place_of",
    "save",
    "train",
]
