"""A plan: how a model is dealt out over ranks. Each rule with its failing equation and its numbers.

ranks = pp x dp x cp x tp      dp = replicate x shard; tp varies fastest, pp slowest, as Megatron-LM lays ranks out
batch = dp x microbatches x microbatch      sequences of a step
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from ..rules import count, flag, one_of, stated, takes, within
from .model import Model

SCHEDULES = ("gpipe", "1f1b", "interleaved")
SEQUENCES = (None, "save", "regather", "overlap")
RECOMPUTE = ("none", "selective", "full")
PRECISIONS = ("fp32", "fp16", "bf16", "fp8")
OPTIMIZERS = ("adam", "sgd")

way = stated("save, regather, overlap or None", lambda given: given in SEQUENCES)


@takes(
    **dict.fromkeys(["pp", "dp", "tp", "cp", "ep", "replicate", "microbatches", "microbatch", "chunks"], count),
    **dict.fromkeys(["offload", "overlap", "flash", "fused"], flag),
    zero=within(0, 3),
    schedule=one_of(SCHEDULES),
    sequence=way,
    recompute=one_of(RECOMPUTE),
    precision=one_of(PRECISIONS),
    optimizer=one_of(OPTIMIZERS),
)
@dataclass(frozen=True)
class Plan:
    pp: int = 1
    dp: int = 1
    tp: int = 1
    zero: int = 0  # 0: every data-parallel rank has all; 1 states, 2 gradients, 3 parameters are sharded
    replicate: int | None = None  # copies of the shards (HSDP). None: dp for ZeRO 0, else 1
    microbatches: int = 1  # of one data-parallel rank, in one step
    microbatch: int = 1  # sequences of each
    schedule: str = "1f1b"
    chunks: int = 1  # stages of a rank
    sequence: str | None = None  # sequence parallelism: "save", "regather" or "overlap"
    recompute: str = "none"
    precision: str = "bf16"
    optimizer: str = "adam"
    cp: int = 1
    ep: int = 1
    offload: bool = False  # are shards in the host's memory, and the optimizer steps there?
    overlap: bool = True  # gradients are reduced, and parameters gathered, while the rank computes
    flash: bool = True  # attention never writes its weights down
    fused: bool = True  # kernels as Megatron-LM's, else as tinydist.model's

    def __post_init__(self):
        if self.replicate is None:
            object.__setattr__(self, "replicate", self.dp if self.zero == 0 else 1)
        if self.dp % self.replicate:
            raise ValueError(f"plan: dp ({self.dp}) must be divisible by replicate ({self.replicate})")
        if self.zero == 0 and self.replicate != self.dp:
            raise ValueError(f"plan: ZeRO 0 shards nothing, so replicate = dp, but {self.replicate} is not {self.dp}")
        if (self.chunks > 1) != (self.schedule == "interleaved"):
            raise ValueError(
                f"plan: {self.schedule} with {self.chunks} stages a rank: interleaved has 2 or more, others 1"
            )
        if self.sequence and self.tp == 1:
            raise ValueError("plan: sequence parallelism cuts tokens over the ranks of a tensor group, but tp = 1")

    def __str__(self):
        axes = [f"{name} {size}" for name, size in self.axes.items() if size > 1]
        zero = f"ZeRO {self.zero}" if self.zero else ""
        hybrid = f"replicate {self.replicate}" if self.zero and self.replicate > 1 else ""
        schedule = self.schedule + f" {self.chunks}" * (self.chunks > 1) if self.pp > 1 else ""
        cut = f"sequence {self.sequence}" if self.sequence else ""
        again = f"{self.recompute} recomputation" if self.recompute != "none" else ""
        rows = f"{self.microbatches} x {self.microbatch} sequences"
        return ", ".join(filter(None, [*axes, zero, hybrid, schedule, cut, again, rows])) or "one rank"

    @property
    def axes(self):
        return {"pp": self.pp, "dp": self.dp, "cp": self.cp, "tp": self.tp}

    @property
    def shard(self):
        return self.dp // self.replicate

    @property
    def ranks(self):
        return self.pp * self.dp * self.cp * self.tp

    @property
    def batch(self):
        """Sequences of a step."""
        return self.dp * self.microbatches * self.microbatch

    @property
    def stages(self):
        return self.pp * self.chunks

    def layers(self, model):
        """Of each pipeline rank: all its stages. The first stages have one more where they do not divide."""
        return dealt_out(model.layers, self.pp, self.chunks)

    @takes(batch=count)
    def with_batch(self, batch):
        """The same plan with as many microbatches as the batch has."""
        share = self.dp * self.microbatch
        if batch % share:
            product = f"dp ({self.dp}) x microbatch ({self.microbatch})"
            raise ValueError(f"plan: batch ({batch}) must be divisible by {product}")
        return replace(self, microbatches=batch // share)


@lru_cache(4096)
def dealt_out(layers, pp, chunks):
    each, more = divmod(layers, pp * chunks)
    stages = [each + (stage < more) for stage in range(pp * chunks)]
    return tuple(sum(stages[rank::pp]) for rank in range(pp))


@takes(plan=Plan, model=Model, ranks=count)
def check(plan, model, ranks=None):
    """Raises ``ValueError`` where the model cannot be dealt out so. ``ranks``: how many there are."""
    for broken in wrong(plan, model, ranks):
        raise ValueError(f"plan: {broken}")


def wrong(plan, model, ranks=None):
    """What does not fit, as equations."""
    tp, pp, T = plan.tp, plan.pp, model.tokens
    if ranks is not None and plan.ranks != ranks:
        axes = " x ".join(f"{name}({size})" for name, size in plan.axes.items() if name != "cp" or size > 1)
        yield f"{axes} = {plan.ranks} ranks, but there are {ranks}"
    if model.heads % tp:
        yield f"heads ({model.heads}) must be divisible by tp ({tp})"
    if model.kv_heads % tp and tp % model.kv_heads:
        yield f"{model.kv_heads} heads of keys on tp = {tp} ranks: neither divides the other"
    if model.inner % tp:
        yield f"the MLP's width ({model.inner}) must be divisible by tp ({tp})"
    if plan.sequence and T % tp:
        yield f"the sequence length ({T}) must be divisible by tp ({tp})"
    if T % plan.cp:
        yield f"the sequence length ({T}) must be divisible by cp ({plan.cp})"
    if plan.stages > model.layers:
        yield f"a stage has 1 or more layers, but pp({pp}) x chunks({plan.chunks}) = {plan.stages} > {model.layers}"
    if plan.schedule == "interleaved" and plan.microbatches % (plan.microbatches // pp or 1):
        yield f"interleaved microbatches make whole rounds of pp, but {plan.microbatches} / {pp} does not"
    for what, given in (("cp", plan.cp > 1), ("ep", plan.ep > 1), ("fp8", plan.precision == "fp8")):
        if given:
            yield f"{what} is not planned yet: parameters are counted, time and memory are not"
    if plan.offload:
        yield "offload is not planned yet"
    if model.latent or model.experts:
        yield f"{model} has {'latent attention' if model.latent else 'experts'}: parameters are counted, time is not"
