"""A parallel plan: the degree of each kind of parallelism, and further options.

    ranks = pp x dp x cp x tp        pp  stages of a pipeline: each rank has some of the layers
                                     dp  data parallel: each has some of the batch
    dp = replicate x shard           cp  context parallel: each has some of the tokens of every sequence
                                     tp  tensor parallel: each has a part of every matrix

    ep of the dp x cp ranks          ep  expert parallel: each has some of the experts, and dp cp/ep have the same ones

    zero    0   1    2    3          of the states of Adam, the gradients, the parameters, how many are sharded
    shards  1   s cp s cp s cp       among how many ranks; there are ``replicate`` copies of the shards (HSDP)
            1   s cp/ep              of experts

    context ring     keys and values pass all cp ranks, while each attends to those that it has
            gather   all of them are gathered first
            ulysses  an all-to-all: of some heads all tokens

    batch = dp x microbatches x microbatch         sequences of a step, the global batch size

The planner finds plans, an engine trains by them, ``train`` has options (plan_options.py): every rule that a plan must
keep stands here, with the equation that fails; what a model must keep, too. Names are those of Narayanan et al.,
Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, 2021, section 3.1 (p, t, d are pp, tp,
dp here), and of torchtitan (Liang et al. 2024, section 2.1). Ranks of a context group have the same parameters, so
gradients and shards are those of dp x cp ranks: as Megatron's data_parallel_group(with_context_parallel=True) and
torchtitan's mesh axis "fsdp" (NVIDIA/Megatron-LM@d98e8a64 megatron/core/parallel_state.py, and
pytorch/torchtitan@b5bcd76c torchtitan/distributed/parallel_dims.py, both read). There expert parallelism lies on the
same ranks: neighbors have different experts, and tp cuts each as it cuts an MLP (Megatron-LM's expert data ranks;
torchtitan's axis "efsdp", where tp ranks have experts of their own).
"""

from dataclasses import dataclass, fields, replace

from .rules import count, each_of, flag, one_of, rate, validate, within

SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "interleaved 1F1B", "bfs": "looped BFS"}
LOOPED = ("interleaved", "bfs")  # several stages per rank
SEQUENCE_PARALLEL = ("save", "regather", "overlap")
CONTEXT = ("ring", "gather", "ulysses")
RECOMPUTE = ("none", "selective", "per_op", "full")
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
SIZES = ("pp", "dp", "cp", "tp", "ep", "replicate")
RULES = {
    "pp": count, "dp": count, "tp": count, "zero": within(0, 3), "replicate": count, "microbatches": count,
    "microbatch": count, "schedule": one_of(SCHEDULES), "chunks": count, "layers": each_of(count),
    "sequence_parallel": one_of(SEQUENCE_PARALLEL), "cp": count, "context": one_of(CONTEXT), "ep": count,
    "recompute": one_of(RECOMPUTE), "precision": one_of(DTYPES), "max_norm": rate,
    "reduce_each": flag, "offload": flag, "overlap_comm": flag, "overlap_param_gather": flag,
}  # fmt: skip


@validate(**RULES)
@dataclass(frozen=True, repr=False)
class Plan:
    """Raises ``ValueError`` for an invalid plan, with the violated equation."""

    pp: int = 1
    dp: int = 1
    tp: int = 1
    zero: int = 0
    replicate: int | None = None  # copies of the shards; None: dp for ZeRO 0, which has no shards, else 1
    microbatches: int = 1  # of one data-parallel rank, in one step
    microbatch: int = 1  # sequences of each; an engine takes what a step brings
    schedule: str = "1f1b"
    chunks: int = 1  # stages of a rank
    layers: tuple[int, ...] | None = None  # blocks of each stage; None: as many in each, the first ones one more
    sequence_parallel: str | None = None  # "save", "regather" or "overlap" (tensor_parallel.shard)
    cp: int = 1
    context: str = "ring"  # how ranks of cp attend to the tokens of the others: "ring", "gather" or "ulysses"
    ep: int = 1  # expert parallel: each of ep data ranks has some of the experts
    recompute: str = "none"  # "selective": attention's weights; "per_op": all but costly operators; "full": blocks
    precision: str = "fp32"  # of parameters and what is computed with them; masters are in fp32
    max_norm: float | None = None  # of all gradients; inf: it is measured, and nothing is clipped
    reduce_each: bool | None = None  # are gradients reduced in every microbatch? None: from ZeRO 2 on
    offload: bool = False  # are shards in the host's memory, and the optimizer steps there?
    overlap_comm: bool = True  # gradients are reduced, and parameters gathered, while the rank computes
    overlap_param_gather: bool = False  # an engine's ZeRO 1 and 2 gather parameters in the next forward, not after step

    def __post_init__(self):
        for words in self.broken():
            raise ValueError(f"Plan: {words}")

    def broken(self):
        """What does not hold, in words."""
        pp, dp, chunks, M, copies, name = self.pp, self.dp, self.chunks, self.microbatches, self.replicas, self.schedule
        if dp % copies:
            yield f"dp ({dp}) must be divisible by replicate ({copies})"
        if self.zero == 0 and copies != dp:
            yield f"ZeRO 0 has no shards, so replicate ({copies}) must equal dp ({dp})"
        if (self.shards if self.zero else dp * self.cp) % self.ep:
            product = (f"dp ({dp})" if copies in (1, dp) else f"dp / replicate ({self.shard})") + f" x cp ({self.cp})"
            yield f"{product} must be divisible by ep ({self.ep}): these ranks share the experts"
        if self.offload and self.zero == 0:
            yield "offload moves shards, and ZeRO 0 has none: zero must be 1, 2 or 3"
        if self.overlap_param_gather and self.zero not in (1, 2):
            yield f"overlap_param_gather is for the all-gather after a step: zero must be 1 or 2, got {self.zero}"
        if self.offload and pp > 1:
            yield f"offload does not support the tied weights of pipelines, so pp({pp}) must be 1"
        if chunks > 1 and name not in LOOPED:
            yield f"{name} has one stage per rank, but chunks({chunks}): that is for {LOOPED[0]}"
        if pp == 1 and name in LOOPED:
            yield f"{name} needs 2 or more pipeline ranks, but pp({pp}) = 1"
        if chunks == 1 and name in LOOPED:
            yield f"{name} needs 2 or more stages per rank, but chunks({chunks}) = 1"
        if name == "interleaved" and M % (M // pp or 1):
            yield f"interleaved microbatches make M // pp rounds, but {M} // {pp} = {M // pp} does not divide {M}"
        if self.layers is not None and len(self.layers) != self.stages:
            yield f"{len(self.layers)} layers, but pp({pp}) x chunks({chunks}) = {self.stages} stages"
        if self.sequence_parallel and self.tp == 1:
            yield "sequence_parallel splits tokens over tensor-parallel ranks, but tp = 1"
        if self.context != "ring" and self.cp == 1:
            yield f"context={self.context!r} is how context-parallel ranks attend, but cp = 1"

    # As text.

    def __repr__(self):
        """What is chosen: all that is not as by default."""
        return f"Plan({', '.join(f'{name}={value!r}' for name, value in self.chosen.items())})"

    def __str__(self):
        axes = [f"{name} {getattr(self, name)}" for name in SIZES[:-1] if getattr(self, name) > 1]
        zero = f"ZeRO {self.zero}" if self.zero else ""
        hybrid = f"replicate {self.replicas}" if self.zero and self.replicas > 1 else ""
        schedule = self.schedule + f" {self.chunks}" * (self.chunks > 1) if self.pp > 1 else ""
        cut = f"sequence {self.sequence_parallel}" if self.sequence_parallel else ""
        context = f"context {self.context}" if self.cp > 1 else ""
        again = f"{self.recompute} recomputation" if self.recompute != "none" else ""
        rows = f"{self.microbatches} x {self.microbatch} sequences"
        return ", ".join(filter(None, [*axes, zero, hybrid, schedule, cut, context, again, rows]))

    @property
    def chosen(self):
        """Field -> value, of what is not as by default."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) != each.default}

    @property
    def product(self):
        context = f"cp({self.cp}) x " * (self.cp > 1)
        return f"pp({self.pp}) x dp({self.dp}) x {context}tp({self.tp}) = {self.ranks} ranks"

    @classmethod
    def parse(cls, mesh, **choices):
        """``Plan.parse("dp=2,pp=2,tp=2", zero=1)``: the sizes as text."""
        sizes = {}
        for each in filter(None, mesh.replace(" ", "").split(",")):
            name, _, size = each.partition("=")
            if name not in SIZES or name in sizes or not size.isdecimal():
                raise ValueError(f"Plan: a mesh has the form dp=2,pp=2,tp=2 with axes {', '.join(SIZES)}, got {mesh!r}")
            sizes[name] = int(size)
        if twice := [name for name in sizes if choices.get(name) is not None]:
            raise ValueError(f"Plan: {twice[0]} is {sizes[twice[0]]} in the mesh, and {choices[twice[0]]} as an option")
        return cls(**choices | sizes)

    # What follows from it.

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

    @property
    def replicas(self):
        """Data ranks that have the same shards."""
        return self.replicate or (self.dp if self.zero == 0 else 1)

    @property
    def shard(self):
        """Data ranks among which states are sharded."""
        return self.dp // self.replicas

    @property
    def shards(self):
        """Ranks among which states are sharded: those of a context group, too."""
        return self.shard * self.cp if self.zero else 1

    @property
    def copies(self):
        """Ranks that have the same shards."""
        return self.dp * self.cp // self.shards

    @property
    def expert_shards(self):
        """The same of experts: ranks among which their states are sharded,"""
        return self.shards // self.ep if self.zero else 1

    @property
    def expert_copies(self):
        """and ranks that have the same shards."""
        return self.dp * self.cp // (self.ep * self.expert_shards)

    @property
    def reduces_each(self):
        return self.zero >= 2 if self.reduce_each is None else self.reduce_each

    @validate(batch=count)
    def with_batch(self, batch):
        """The same plan with as many microbatches as the batch has."""
        share = self.dp * self.microbatch
        if batch % share:
            product = f"dp ({self.dp}) x microbatch ({self.microbatch})"
            raise ValueError(f"Plan: batch ({batch}) must be divisible by {product}")
        return replace(self, microbatches=batch // share)

    # What it asks of a model.

    def stage_layers(self, layers):
        """Of how many layers each stage is. Raises ``ValueError`` if it cannot be."""
        for words in self._broken_by(layers):
            raise ValueError(f"Plan: {words}")
        return list(self.layers or evenly(layers, self.stages))

    def uneven(self, tokens):
        """Why a sequence cannot be cut so, in words."""
        cp, tp = self.cp, self.tp
        if cp > 1 and tokens % (2 * cp):
            yield f"the sequence length ({tokens}) must be divisible by 2 x cp ({2 * cp}): each rank has two chunks"
        if self.sequence_parallel and tokens % (cp * tp):
            by = f"cp ({cp}) x tp ({tp})" if cp > 1 else f"tp ({tp})"
            yield f"the sequence length ({tokens}) must be divisible by {by}"

    def unshared(self, experts):
        """Why the experts of a layer, 0 if there are none, cannot be shared so, in words."""
        if self.ep > 1 and not experts:
            yield f"ep ({self.ep}) ranks share the experts, but the model has none"
        elif experts % self.ep:
            yield f"experts ({experts}) must be divisible by ep ({self.ep})"

    def _broken_by_heads(self, heads, keys):
        """Where heads of a tensor rank are divided once more. ``keys``: those of keys and values that it has."""
        if heads % (self.cp * self.tp):
            yield f"heads ({heads}) must be divisible by cp ({self.cp}) x tp ({self.tp}) for context='ulysses'"
        if keys % self.cp and self.cp % keys:
            yield f"the kv_heads of a tensor rank ({keys}) must be divisible by cp ({self.cp}), or cp by them"

    def _broken_by(self, layers):
        if self.layers is None and layers < self.stages:
            yield f"pp({self.pp}) x chunks({self.chunks}) = {self.stages} stages, but {layers} layers"
        if self.layers is not None and sum(self.layers) != layers:
            added = " + ".join(map(str, self.layers))
            yield f"layers {added} = {sum(self.layers)}, but the model has {layers} layers"

    def unsuited(self, layers, heads, tokens, kv_heads=None, inner=None, experts=0):
        """Why a model cannot be divided so, in words. ``tokens``: of a sequence; ``inner``: the MLP's width."""
        tp = self.tp
        if heads % tp:
            yield f"heads ({heads}) must be divisible by tp ({tp})"
        if kv_heads and kv_heads % tp and tp % kv_heads:
            yield f"kv_heads ({kv_heads}) must be divisible by tp ({tp}), or tp by kv_heads"
        if inner and inner % tp:
            yield f"the MLP's width ({inner}) must be divisible by tp ({tp})"
        yield from self.unshared(experts)
        yield from self.uneven(tokens)
        if self.context == "ulysses":
            yield from self._broken_by_heads(heads, max(1, (kv_heads or heads) // tp))
        yield from self._broken_by(layers)


def evenly(layers, stages):
    """Of how many layers each stage is: the first ones have one more where they do not divide."""
    each, more = divmod(layers, stages)
    return [each + (stage < more) for stage in range(stages)]
