"""tinydist: how large models are trained on many accelerators, step by step, on a laptop.

The library in reading order:

    rules.py          what an argument must be: each rule once
    torch_versions.py  which torch was tested
    torch_internals/  every private name of torch that is touched, and why
    annotate.py       what a program says about itself: regions, marks, purposes, labels
    reduce.py         tensors of several ranks become one
    hardware/         what a cluster is made of, and what work on it costs
    collectives/      what ranks say together, built from messages between two of them
    console/          a line while the reader waits; how the command line is written where it is printed
    tracing/          what ranks did, when, and what they held: record, virtual time, ledger, trace
    simulator/        a cluster inside one process: a backend of torch.distributed
    processes/        real ranks from a notebook: gloo or nccl workers
    launching/        the front door: run one function on N ranks of any world
    recompute.py      forward once more in backward, so that less is held between
    precision/        compute in 16 bits or 8, add up in 32: formats, autocast, loss scaling, six ways to keep weights
    data_parallel/    every rank has the model, and a part of the batch: DP, DDP
    checkpoint/       saved whole or by shards, loaded by any number of ranks, or the save before
    zero/             optimizer states, gradients, parameters: each rank keeps its shard alone (ZeRO, FSDP)
    tensor_parallel/  every rank has a part of each matrix, and works on each token: Megatron's f and g, cut tokens
    pipeline_parallel/  every rank has some of the layers: schedules, written or found, verified, executed
    attention/        MHA, GQA, MQA, MLA; the KV cache; flash attention, from online softmax upwards
    model/            one plain GPT that knows nothing of parallelism, and text for it
    training/         data, tensor and pipeline parallel together: a plan, an engine that trains by it, and a loop
    planner/          which plan fits, how long a step takes, what a run costs: arithmetic, scored on published steps
    serving/          many people ask at once: the cache in blocks, shared; who is served when; an engine that writes
    visuals/          pictures of a run: who did what when, who holds what, who sends to whom; and sliders
    magic/            %%ranks 4: a notebook's cell as the program of each rank
    lab/              exercises: the check on three axes, hints, progress
    diagnose/         what is wrong: who keeps the others waiting? Is everything here that tinydist needs?
"""

from importlib import import_module

__all__ = [
    "DeadlockError",
    "MismatchError",
    "Run",
    "StuckError",
    "WorkerDied",
    "label",
    "launch",
    "mark",
    "purpose",
    "region",
]
WITH_TORCH = {  # where those are that are loaded when they are first used, as torch takes its time
    "WorkerDied": ".processes",
    "label": ".annotate",
    "mark": ".annotate",
    "purpose": ".annotate",
    "region": ".annotate",
}

try:
    from .console.waiting import waiting_for
    from .launching.launch import Run, launch
    from .simulator.deadlock import DeadlockError
    from .simulator.matching import MismatchError
    from .simulator.stuck import StuckError
    from .tracing.shown import Shown

    def _picture_of(shown, **_):
        from .visuals.summary import picture_of  # only now: matplotlib takes its time

        return picture_of(shown)

    Run._repr_mimebundle_ = Shown._repr_mimebundle_ = _picture_of  # they know nothing of pictures

    def __getattr__(name):
        if name not in WITH_TORCH:
            raise AttributeError(f"tinydist has no {name}")
        with waiting_for("loading torch"):
            found = globals()[name] = getattr(import_module(WITH_TORCH[name], __name__), name)
        return found

except ImportError as error:  # the doctor works, and says so
    _why = error

    def __getattr__(name):
        raise AttributeError(f"tinydist.{name} is not here: {_why}") from _why


def load_ipython_extension(shell):
    """``%load_ext tinydist``: from there on, ``%%ranks 4`` runs a cell on each of four ranks."""
    from .magic import RanksMagic

    shell.register_magics(RanksMagic)
