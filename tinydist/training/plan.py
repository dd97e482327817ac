"""A plan: how many ranks each kind of parallelism has, and what is chosen besides.

    ranks = pp x dp x tp             pp  stages of a pipeline: each rank has some of the layers
                                     dp  data parallel: each has some of the batch
    dp = replicate x shard           tp  tensor parallel: each has a part of every matrix

    zero    0   1   2   3            of the states of Adam, the gradients, the parameters, how many are sharded
    shard   1   s   s   s            among how many ranks; there are ``replicate`` copies of the shards (HSDP)

Every rule that a plan must keep stands here, with the equation that fails; what a model must keep, too. Names are those
of Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, 2021, section 3.1
(p, t, d are pp, tp, dp here), and of torchtitan (Liang et al. 2024, section 2.1).
"""

from dataclasses import dataclass, fields

import torch

from ..pipeline_parallel import evenly, make_schedule
from ..rules import count, each_of, flag, one_of, rate, takes, within
from ..tensor_parallel.layouts import WAYS

SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "interleaved 1F1B", "bfs": "looped BFS"}
IN_A_LOOP = ("interleaved", "bfs")  # schedules of several stages a rank
RECOMPUTED = ("none", "selective", "full")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SIZES = ("pp", "dp", "tp", "replicate")


@takes(pp=count, dp=count, tp=count, zero=within(0, 3), replicate=count, microbatches=count, schedule=one_of(SCHEDULES))
@takes(chunks=count, layers=each_of(count), sequence=one_of(WAYS), recompute=one_of(RECOMPUTED))
@takes(precision=one_of(DTYPES), max_norm=rate, reduce_each=flag, offload=flag)
@dataclass(frozen=True, repr=False)
class Plan:
    """Raises ``ValueError`` for what cannot be, with the equation that does not hold."""

    pp: int = 1
    dp: int = 1
    tp: int = 1
    zero: int = 0
    replicate: int | None = None  # copies of the shards; None: dp for ZeRO 0, which has no shards, else 1
    microbatches: int = 1  # of one data-parallel rank, in one step
    schedule: str = "1f1b"
    chunks: int = 1  # stages of a rank
    layers: tuple[int, ...] | None = None  # blocks of each stage; None: as many in each, the first ones one more
    sequence: str | None = None  # sequence parallelism: "save", "regather" or "overlap" (tensor_parallel.shard)
    recompute: str = "none"  # "selective": attention's weights; "full": blocks
    precision: str = "fp32"  # of parameters and what is computed with them; masters are in fp32
    max_norm: float | None = None  # of all gradients; inf: it is measured, and nothing is clipped
    reduce_each: bool | None = None  # are gradients reduced in every microbatch? None: from ZeRO 2 on
    offload: bool = False  # are shards in the host's memory, and the optimizer steps there?

    def __post_init__(self):
        for holds, words in self.rules():
            if not holds:
                raise ValueError(f"Plan: {words}")
        self.make_schedule()

    def __repr__(self):
        """What is chosen: all that is not as by default."""
        chosen = {each.name: getattr(self, each.name) for each in fields(self)}
        chosen = {each.name: chosen[each.name] for each in fields(self) if chosen[each.name] != each.default}
        return f"Plan({', '.join(f'{name}={value!r}' for name, value in chosen.items())})"

    def rules(self):
        """What must hold, and the words in which it does not."""
        pp, dp, chunks, copies, name = self.pp, self.dp, self.chunks, self.replicas, self.schedule
        yield dp % copies == 0, f"dp ({dp}) must be divisible by replicate ({copies})"
        yield self.zero > 0 or copies == dp, f"ZeRO 0 has no shards, so replicate ({copies}) must equal dp ({dp})"
        home = not self.offload
        yield home or self.zero > 0, "offload moves shards, of which ZeRO 0 has none: zero must be 1, 2 or 3"
        yield home or pp == 1, f"offload takes gradients from where stages add up tied ones, so pp({pp}) must be 1"
        looped = name in IN_A_LOOP
        yield looped or chunks == 1, f"{name} has one stage a rank, but chunks({chunks}): that is for {IN_A_LOOP[0]}"
        yield not looped or pp > 1, f"{name} goes around in a loop of 2 or more ranks, but pp({pp}) = 1"
        yield not looped or chunks > 1, f"{name} needs 2 or more stages a rank, but chunks({chunks}) = 1"
        given = self.stages if self.layers is None else len(self.layers)
        yield given == self.stages, f"{given} layers, but pp({pp}) x chunks({chunks}) = {self.stages} stages"

    @classmethod
    def parse(cls, mesh, **choices):
        """``Plan.parse("dp=2,pp=2,tp=2", zero=1)``: the sizes as text."""
        sizes = {}
        for each in filter(None, mesh.replace(" ", "").split(",")):
            name, _, size = each.partition("=")
            if name not in SIZES or name in sizes or not size.isdecimal():
                raise ValueError(f"Plan: a mesh is written dp=2,pp=2,tp=2, of {', '.join(SIZES)}, got {mesh!r}")
            sizes[name] = int(size)
        return cls(**sizes, **choices)

    # What follows from it.

    @property
    def ranks(self):
        return self.pp * self.dp * self.tp

    @property
    def stages(self):
        return self.pp * self.chunks

    @property
    def replicas(self):
        """Ranks that have the same shards."""
        return self.replicate or (self.dp if self.zero == 0 else 1)

    @property
    def shard(self):
        """Ranks among which states are sharded."""
        return self.dp // self.replicas

    @property
    def dtype(self):
        return DTYPES[self.precision]

    @property
    def reduces_each(self):
        return self.zero >= 2 if self.reduce_each is None else self.reduce_each

    def make_schedule(self):
        """Of the pipeline; one of a single stage accumulates gradients."""
        return make_schedule(SCHEDULES[self.schedule], self.pp, self.microbatches, self.chunks)

    def microbatch(self, shape):
        """[rows, tokens] of what passes between stages, of a data rank's batch [rows, tokens]."""
        if shape is None or len(shape) != 2 or shape[0] % self.microbatches:
            rule, got = f"B/dp rows in {self.microbatches} microbatches", shape and list(shape)
            raise ValueError(f"step: takes tokens or targets [B/dp, T], {rule}, got {got}")
        if self.sequence and shape[1] % self.tp:
            raise ValueError(f"step: the sequence length ({shape[1]}) must be divisible by tp ({self.tp})")
        return shape[0] // self.microbatches, shape[1] // (self.tp if self.sequence else 1)

    def sizes(self, blocks):
        """Of how many layers each stage is: embedding, blocks, head. Raises ``ValueError`` if it cannot be."""
        stages = self.stages
        if self.layers is None and blocks < stages:
            raise ValueError(f"Plan: pp({self.pp}) x chunks({self.chunks}) = {stages} stages, but {blocks} blocks")
        if self.layers is not None and sum(self.layers) != blocks:
            added = " + ".join(map(str, self.layers))
            raise ValueError(f"Plan: layers {added} = {sum(self.layers)}, but the model has {blocks} blocks")
        sizes = list(self.layers or evenly(range(blocks), stages))
        sizes[0] += 1
        sizes[-1] += 1
        return sizes
