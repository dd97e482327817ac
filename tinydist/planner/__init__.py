"""Planning a run: an analytical model of memory, step time and total cost of parallel plans. No tensors.

model.py         a transformer's sizes, parameters and FLOPs; presets.py: models to start from; shares.py: of a rank
programs.py      what runs a plan: its kernels; program_limits.py: what it cannot run; program_options.py: its flags
checks.py        plans that are refused
operators.py     five kinds of operators
passes.py        computation and communication of one rank, forward and backward; products.py: matmuls
context.py       attention on ranks of context parallelism; latent.py: multi-head latent attention
experts.py       experts on the ranks that share them
efficiency.py    achievable fractions of peak FLOP/s and bandwidth: every constant, with its source
machine.py       seconds per operator: as measured on hardware, or as on the simulated clock
overlap.py       data-parallel communication, and how much of it is exposed; uses.py: what DeepSpeed's ZeRO 3 gathers
microbatch.py    seconds of a microbatch on one rank, by kind
step_time.py     time of a step, term by term; published.py, published_experts.py: measured steps
activations.py   activation memory; buckets.py: lifetime of unsharded gradients
memory.py        peak memory by category
search.py        search over all plans for a cluster, with explanations
run.py           GPU hours, days, money, energy; checkpoints and failures
command.py       python -m tinydist plan

best = search(find_model("Llama 3 70B"), find_cluster("H100 node").pod(64), batch=2048).best
print(explain(best), RunCost(best, tokens=15e12))
"""

from ..plan import Plan
from .checks import check
from .machine import Clock, Measured
from .memory import MemoryEstimate, memory
from .model import Experts, Latent, Model
from .presets import MODELS, find_model
from .programs import DEEPSPEED, FSDP, MEGATRON_LM, PROGRAMS, TINYDIST, TORCHTITAN, Program, find_program
from .run import RunCost, daly, goodput, young
from .search import Candidate, evaluate, explain, search
from .step_time import StepTime, step_time

__all__ = [
    "DEEPSPEED",
    "FSDP",
    "MEGATRON_LM",
    "MODELS",
    "PROGRAMS",
    "TINYDIST",
    "TORCHTITAN",
    "Candidate",
    "Clock",
    "Experts",
    "Latent",
    "Measured",
    "MemoryEstimate",
    "Model",
    "Plan",
    "Program",
    "RunCost",
    "StepTime",
    "check",
    "daly",
    "evaluate",
    "explain",
    "find_model",
    "find_program",
    "goodput",
    "memory",
    "search",
    "step_time",
    "young",
]
