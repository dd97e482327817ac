"""A plan as options of a command: ``train`` reads them, and the planner prints them.

plan_of(options)        Plan(pp=2, dp=4, zero=1)     what a parser with ``add_options`` has read
options_of(plan)        --mesh pp=2,dp=4 --batch 4 --zero 1
"""

from dataclasses import replace

from .plan import CONTEXT, DTYPES, SCHEDULES, SEQUENCE_PARALLEL, SIZES, Plan

OPTIONS = {  # for each field: its name, its type, what it takes, help
    "microbatches": (
        "--microbatches", int, "N", "microbatches per step: of the pipeline, or for gradient accumulation",
    ),
    "max_norm": ("--grad-clip", float, "NORM", "maximum gradient norm (default: no clipping)"),
    "zero": ("--zero", int, range(4), "ZeRO stage: shard optimizer states (1), gradients (2), parameters (3)"),
    "overlap_param_gather": (
        "--overlap-param-gather", bool, None, "overlap the all-gather of parameters with the next forward (ZeRO 1, 2)",
    ),
    "replicate": ("--replicate", int, "N", "number of replica groups for hybrid sharding (HSDP)"),
    "precision": ("--precision", str, DTYPES, "training precision"),
    "recompute": ("--recompute", str, ("none", "selective", "full"), "activation recomputation"),
    "sequence_parallel": (
        "--sequence-parallel", str, SEQUENCE_PARALLEL,
        "sequence parallelism: save gathered activations, regather them in backward, or overlap with matmuls",
    ),
    "context": ("--context-parallel", str, CONTEXT, "attention of context-parallel ranks"),
    "schedule": ("--schedule", str, SCHEDULES, "pipeline schedule"),
    "chunks": ("--virtual-stages", int, "N", "virtual pipeline stages per rank (interleaved)"),
}  # fmt: skip


def add_options(parser):
    """To an ``argparse`` parser, those that ``Plan.of`` reads."""
    default = " (default: %(default)s)"
    mesh = "parallelism degrees" + default
    parser.add_argument("--mesh", default="dp=1", metavar="dp=2,pp=2,tp=2", help=mesh)
    batch = "global batch size, in sequences" + default
    parser.add_argument("--batch", type=int, default=16, metavar="N", help=batch)
    for name, (option, kind, values, words) in OPTIONS.items():
        if kind is bool:
            parser.add_argument(option, dest=name, action="store_true", help=words)
            continue
        natural = Plan.__dataclass_fields__[name].default
        metavar = values if isinstance(values, str) else f"{{{','.join(map(str, values))}}}"
        words += default * (natural is not None)
        parser.add_argument(option, dest=name, type=kind, default=natural, metavar=metavar, help=words)


def plan_of(options):
    """The batch says how many sequences a microbatch has."""
    plan = Plan.parse(options.mesh, **{name: getattr(options, name) for name in OPTIONS})
    parts = plan.dp * plan.microbatches
    if options.batch % parts:
        product = f"dp ({plan.dp}) x microbatches ({plan.microbatches})"
        raise ValueError(f"Plan: batch ({options.batch}) must be divisible by {product}")
    return replace(plan, microbatch=options.batch // parts)


def options_of(plan):
    """Option -> value, from which ``plan_of`` makes this plan; a flag has none: ""."""
    chosen = {name: value for name, value in plan.chosen.items() if name != "microbatch"}
    mesh = ",".join(f"{name}={chosen.pop(name)}" for name in SIZES[:-1] if name in chosen)
    if none := chosen.keys() - OPTIONS.keys():
        raise ValueError(f"Plan: there is no option for {', '.join(sorted(none))}")
    words = {"--mesh": mesh or "dp=1", "--batch": plan.batch}
    return words | {OPTIONS[name][0]: "" if value is True else value for name, value in chosen.items()}
