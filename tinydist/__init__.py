"""tinydist: how large models are trained on many accelerators, step by step, on a laptop.

The library in reading order:

    waiting.py        a line that says what is going on while the reader waits
    shell.py          how the command line is written where it is printed
    rules.py          what an argument must be: each rule once
    hardware/         what a cluster is made of, and what work on it costs
    simulator/        a cluster inside one process: a backend of torch.distributed
    processes/        real ranks from a notebook: gloo or nccl workers
    options.py        what launch takes: one rule for each option
    torchrun.py       this process as a rank of a job that has begun
    launch.py         the front door: run one function on N ranks of any world
    collectives/      what ranks say together, built from messages between two of them
    recompute.py      forward once more in backward, so that less is held between
    precision/        compute in 16 bits or 8, add up in 32: formats, autocast, loss scaling, six ways to keep weights
    data_parallel/    every rank has the model, and a part of the batch: DP, DDP
    zero/             optimizer states, gradients, parameters: each rank keeps its shard alone (ZeRO, FSDP)
    tensor_parallel/  every rank has a part of each matrix, and works on each token: Megatron's f and g, cut tokens
    pipeline_parallel/  every rank has some of the layers: schedules, written or found, verified, executed
    attention/        MHA, GQA, MQA, MLA; the KV cache; flash attention, from online softmax upwards
    model/            one plain GPT that knows nothing of parallelism, and text for it
    training/         data, tensor and pipeline parallel together: a plan, an engine that trains by it, and a loop
    planner/          which plan fits, how long a step takes, what a run costs: arithmetic, scored on published steps
    visuals/          pictures of a run: who did what when, who holds what, who sends to whom; and sliders
    lab/              exercises: the check on three axes, hints, progress
    diagnose.py       who keeps the others waiting? By traces, and by PyTorch's Flight Recorder
    doctor.py         is everything here that tinydist needs?
"""

try:
    from .waiting import waiting_for

    with waiting_for("loading torch"):
        from .launch import Run, launch
        from .processes import WorkerDied
        from .simulator.deadlock import DeadlockError
        from .simulator.labels import label
        from .simulator.matching import MismatchError
        from .simulator.memory import purpose
        from .simulator.names import mark, region
        from .simulator.stuck import StuckError
        from .simulator.trace import Shown

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

    def _picture_of(shown, **_):
        from .visuals.summary import picture_of  # only now: matplotlib takes its time

        return picture_of(shown)

    Run._repr_mimebundle_ = Shown._repr_mimebundle_ = _picture_of  # they know nothing of pictures
except Exception as error:  # no torch, or one that does not suit: the doctor works, and says so
    _why = error

    def __getattr__(name):
        raise AttributeError(f"tinydist.{name} is not here: {_why}") from _why
