"""Programs that run a plan: their kernels, what they cannot run, and the flags that switch a plan on.

                  kernels                   ZeRO, in a pipeline   sequence parallelism   recomputation     context
    Megatron-LM   fused                     0 to 3, 0 and 1       regather               selective, full   all three
    DeepSpeed     torch's                   0 to 3, 0 and 1       -                      full              ulysses
    FSDP          torch's                   0, 2, 3, none         -                      full              -
    torchtitan    torch's, or compiled      0, 2, 3, 0 and 1      save                   per_op, full      gather
    tinydist      torch's                   0 to 3                save, regather         selective, full   all three

Experts are known of Megatron-LM and tinydist; others have them, too, and the planner has not their kernels. What else a
program cannot run is in program_limits.py, its flags in program_options.py, both with their sources.
``replace(MEGATRON_LM, flash=False)`` is the same program with attention that writes its weights down.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ..hardware.lookup import look_up
from ..plan import CONTEXT, RECOMPUTE, SCHEDULES, SEQUENCE_PARALLEL, Plan
from ..rules import amount, each_of, flag, function, one_of, validate, within
from . import program_limits, program_options
from .ends import LOSS
from .holds import DEEPSPEED as DEEPSPEED_HOLDS
from .holds import FSDP as FSDP_HOLDS
from .holds import FSDP_2, MEGATRON, Holds
from .model import Model

STAGES, FEATURES = (0, 1, 2, 3), ("compiled", "fp8")
SUMS = ("reduce-scatter", "reduce", "all-reduce")


def few(choices, default=()):
    """A field of choices. They follow from the program, which need not be hashed by them."""
    return field(default=default or choices, hash=False)


@validate(
    name=str,
    fused=flag,
    flash=flag,
    compiled=flag,
    fp8=flag,
    loss=one_of(LOSS),
    holds=Holds,
    early_stop=flag,
    blocking=flag,
    sums=one_of(SUMS),
    narrow_sums=flag,
    reuse=amount,
    experts=flag,
    source=str,
)
@validate(zero=each_of(within(0, 3)), zero_in_pipeline=each_of(within(0, 3)), schedules=each_of(one_of(SCHEDULES)))
@validate(sequence_parallel=each_of(one_of(SEQUENCE_PARALLEL), 0), recompute=each_of(one_of(RECOMPUTE)))
@validate(context=each_of(one_of(CONTEXT), 0))
@validate(features=each_of(one_of(FEATURES), 0), limits=function, flags=function)
@dataclass(frozen=True)
class Program:
    """``limits(plan, model)`` gives what else it cannot run, in words; ``flags(program, plan, model)`` what to type."""

    name: str
    fused: bool = False  # scale, mask and softmax in one kernel; bias and GELU; bias, dropout and residual
    attention: str | None = None  # its kernel; None: what torch chooses on a device
    flash: bool = True  # attention in one kernel, which never writes its weights down
    loss: str = "cross_entropy"  # its kernels (passes.py)
    compiled: bool = False  # torch.compile fuses pointwise operators
    fp8: bool = False  # matmuls of linear layers in fp8
    holds: Holds | None = None  # in memory; None: as this library's engine, tensor by tensor
    early_stop: bool = True  # recomputation ends as soon as all is there that backward needs
    blocking: bool = False  # CUDA_LAUNCH_BLOCKING=1: the CPU launches a kernel when the one before has ended
    sums: str = "reduce-scatter"  # the collective by which ZeRO 1 and 2 sum up gradients over shards; 3 scatters
    narrow_sums: bool = False  # gradients of bf16 are sent in bf16
    reuse: float | None = None  # ZeRO 3 gathers by use (uses.py); what is used within so many numbers stays
    experts: bool = False  # are its MoE layers known here? (experts.py)
    zero: tuple[int, ...] = few(STAGES)
    zero_in_pipeline: tuple[int, ...] = few(STAGES)
    schedules: tuple[str, ...] = few((*SCHEDULES,))
    sequence_parallel: tuple[str, ...] = few(SEQUENCE_PARALLEL)
    recompute: tuple[str, ...] = few(RECOMPUTE)
    context: tuple[str, ...] = few(CONTEXT)
    features: tuple[str, ...] = few(FEATURES)  # of FEATURES those that it has
    limits: Callable = program_limits.none
    flags: Callable = program_options.none
    source: str = ""

    def __str__(self):
        return self.name

    def zero_stages(self, pp):
        return self.zero if pp == 1 else self.zero_in_pipeline

    @validate(plan=Plan, model=Model)
    def options(self, plan, model) -> str:
        """The flags that switch the plan on, as one types them. Raises ``ValueError`` if it cannot run the plan."""
        for words in self.broken(plan, model):
            raise ValueError(f"options: {words}")
        return self.flags(self, plan, model)

    def broken(self, plan, model):
        """What the program cannot run, in words."""
        if plan.zero not in self.zero_stages(plan.pp):
            yield self.unable("zero", plan.zero, self.zero_stages(plan.pp), f" with pp = {plan.pp}" * (plan.pp > 1))
        if plan.pp > 1 and plan.schedule not in self.schedules:
            yield self.unable("schedule", plan.schedule, self.schedules)
        if plan.sequence_parallel and plan.sequence_parallel not in self.sequence_parallel:
            yield self.unable("sequence_parallel", plan.sequence_parallel, (*self.sequence_parallel, None))
        if plan.recompute not in self.recompute:
            yield self.unable("recompute", plan.recompute, self.recompute)
        if plan.cp > 1 and plan.context not in self.context:
            yield self.unable("context", plan.context, self.context or ["cp = 1"])
        if model.experts and not self.experts:
            yield f"{self}: how it runs experts is not known to the planner: choose Megatron-LM or tinydist"
        for each in FEATURES:
            if getattr(self, each) and each not in self.features:
                yield f"{self} has no {each}=True: its matmuls and kernels are what they are"
        for words in self.limits(plan, model):
            yield f"{self}: {words}"

    def unable(self, name, value, known, where=""):
        return f"{self} cannot run {name}={value!r}{where}: choose {' or '.join(map(str, known))}"


MEGATRON_LM = Program(
    "Megatron-LM", fused=True, loss="vocab_parallel", zero_in_pipeline=(0, 1), schedules=("1f1b", "interleaved"),
    sequence_parallel=("regather",), recompute=("none", "selective", "full"), features=("fp8",),
    limits=program_limits.megatron_lm, flags=program_options.megatron_lm, source=program_limits.MEGATRON_LM,
    holds=MEGATRON, experts=True,
)  # fmt: skip
DEEPSPEED = Program(
    "DeepSpeed", zero_in_pipeline=(0, 1), schedules=("1f1b",), sequence_parallel=(), recompute=("none", "full"),
    context=("ulysses",), features=("compiled",), limits=program_limits.deepspeed, flags=program_options.deepspeed,
    source=program_limits.DEEPSPEED,
    holds=DEEPSPEED_HOLDS, sums="all-reduce", narrow_sums=True, reuse=1e9,
)  # fmt: skip
FSDP = Program(
    "FSDP", zero=(0, 2, 3), zero_in_pipeline=(0,), sequence_parallel=(), recompute=("none", "full"),
    context=(), limits=program_limits.fsdp, flags=program_options.fsdp, source=program_limits.FSDP,
    holds=FSDP_HOLDS,
)  # fmt: skip
TORCHTITAN = Program(
    "torchtitan", early_stop=False, zero=(0, 2, 3), zero_in_pipeline=(0, 1), schedules=("gpipe", "1f1b", "interleaved"),
    sequence_parallel=("save",), recompute=("none", "per_op", "full"), context=("gather",),
    limits=program_limits.torchtitan,
    flags=program_options.torchtitan, source=program_limits.TORCHTITAN,
    holds=FSDP_2,
)  # fmt: skip
TINYDIST = Program(
    "tinydist", loss="looked_up", recompute=("none", "selective", "full"), features=(), limits=program_limits.tinydist,
    flags=program_options.tinydist, source="this library: training/parallelize.py", experts=True,
)  # fmt: skip
PROGRAMS = {each.name: each for each in (MEGATRON_LM, DEEPSPEED, FSDP, TORCHTITAN, TINYDIST)}


def find_program(name) -> Program:
    """``'Megatron-LM'`` and so on; a Program is returned as it is."""
    return look_up("program", PROGRAMS, name)
