"""tinydist: how large models are trained on many accelerators, step by step, on a laptop.

The library in reading order; a package imports only packages above it.

Foundations:

    rules.py            argument validation: each rule is defined once
    torch_versions.py   which versions of torch were tested
    torch_internals/    every private torch API that is used, and why
    annotate.py         annotations for traces: regions, marks, purposes, labels
    reduce.py           reduction operators over the tensors of several ranks
    hardware/           hardware specifications and the cost model
    plan.py             a parallel plan: the degree of each kind of parallelism, and other options
    plan_options.py     a plan as options of a command
    collectives/        collective algorithms, built from point-to-point messages
    checkpoint/         full or sharded checkpoints, resharded on load, replaced atomically
    precision/          compute in 16 or 8 bits, accumulate in 32: formats, autocast, loss scaling, master weights

A cluster, simulated or real:

    console/            progress messages; command lines formatted for the current shell
    tracing/            execution record, virtual clock, memory ledger, trace
    simulator/          a cluster inside one process: a backend of torch.distributed
    gpus/               pretended GPUs: a program written for CUDA, on CPU tensors; forecasts on tensors without data
    processes/          real ranks from a notebook: gloo or nccl workers
    launching/          launch(): run one function on N ranks, on any backend

Techniques:

    recompute/          activation recomputation (checkpointing)
    data_parallel/      every rank holds the whole model and processes a shard of the batch: DP, DDP
    zero/               sharded optimizer states, gradients and parameters (ZeRO stages 1-3, FSDP), offload
    tensor_parallel/    every rank holds a shard of each weight matrix: Megatron's f and g, sequence parallelism
    pipeline_parallel/  every rank holds some of the layers: schedules, schedule search, verifier, executor
    attention/          MHA, GQA, MQA, MLA; the KV cache; flash attention, from online softmax upwards
    experts/            mixture of experts, on one rank or on several: an all-to-all in every layer
    context_parallel/   one sequence on several ranks: ring, all-gather and Ulysses attention
    compilers/          what a compiler does to a step: fusion, memory plans, generated code, collectives
    compression/        fewer bytes: gradients in one bit, in low rank, as top-k elements, or sent seldom; LAMB
    quantization/       weights in blocks of 4 to 8 bits, as llama.cpp keeps them; GGUF files; GPTQ, AWQ
    model/              a plain single-device GPT, and a text dataset

Whole programs:

    training/           data, tensor, pipeline, context and expert parallelism combined: engine, training loop
    planner/            analytical model of memory, step time and cost of a run, compared with published measurements
    serving/            continuous batching over a paged KV cache, an engine, an HTTP server; replays on the clock

The course, and tools:

    visuals/            plots of a run: timelines, memory, shard placement, traffic; interactive sliders
    magic/              the %%ranks magic: run a notebook cell on every rank
    testing/            the pytest plugin: a test function on several ranks
    syllabus/           chapters and exercises: the registry, generated notebooks, a reader's copy and progress
    lab/                checks of answers: values, communication and cost; hints
    diagnose/           stragglers and hangs of a run; what an installation lacks
    scripts/            tinydist run: unmodified scripts for torchrun or spawn, on simulated ranks
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
    from .console.progress_message import progress_message
    from .launching.launch import Run, launch
    from .simulator.deadlock import DeadlockError
    from .simulator.matching import MismatchError
    from .simulator.stuck import StuckError
    from .tracing import TraceView

    def _picture_of(view, **_):
        from .visuals.summary import picture_of  # only now: matplotlib takes its time

        return picture_of(view)

    Run._repr_mimebundle_ = TraceView._repr_mimebundle_ = _picture_of  # they know nothing of pictures

    def __getattr__(name):
        if name not in WITH_TORCH:
            raise AttributeError(f"tinydist has no {name}")
        with progress_message("loading torch"):
            found = globals()[name] = getattr(import_module(WITH_TORCH[name], __name__), name)
        return found

except ImportError as error:  # the doctor works, and says so
    _why = error

    def __getattr__(name):
        raise AttributeError(f"tinydist.{name} is not available: {_why}") from _why


def load_ipython_extension(shell):
    """``%load_ext tinydist`` registers ``%%ranks``: ``%%ranks 4`` runs a cell on each of four ranks."""
    from .magic import RanksMagic

    shell.register_magics(RanksMagic)
