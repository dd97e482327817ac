"""Planning a run: which parallel plan fits, how long a step takes, what the whole run costs. Arithmetic, no tensors.

model.py         a transformer's sizes, parameters and FLOPs; presets.py: models to start from
plan.py          how it is dealt out, and which plans make no sense
work.py          what a rank has to do, in five kinds
operators.py     what one rank computes and sends
efficiency.py    what programs get of devices and wires: every constant, with its source
machine.py       seconds of an operator: as programs get them, or as on the simulated clock
passes.py        a microbatch; overlap.py: what data parallelism sends, and what hides it
step_time.py     a step, term by term; published.py: steps that were measured
activations.py   bytes that blocks keep; buckets.py: whole gradients, and how long they live
memory.py        bytes at the peak, by what they are for
search.py        all plans of a cluster, the best, and why
run.py           GPU hours, days, money, energy; checkpoints and failures
command.py       python -m tinydist plan

best = search(find_model("Llama 3 70B"), find_cluster("H100 node").pod(64), batch=2048).best
print(explain(best), Run(best, tokens=15e12))
"""

from .efficiency import Efficiency
from .machine import Clock, Measured
from .memory import Memory, memory
from .model import Experts, Latent, Model
from .plan import Plan, check
from .presets import MODELS, find_model
from .run import Run, daly, goodput, young
from .search import Candidate, evaluate, explain, search
from .step_time import Step, step_time

__all__ = [
    "MODELS",
    "Candidate",
    "Clock",
    "Efficiency",
    "Experts",
    "Latent",
    "Measured",
    "Memory",
    "Model",
    "Plan",
    "Run",
    "Step",
    "check",
    "daly",
    "evaluate",
    "explain",
    "find_model",
    "goodput",
    "memory",
    "search",
    "step_time",
    "young",
]
