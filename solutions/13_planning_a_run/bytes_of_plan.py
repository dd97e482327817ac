"""What a rank of a plan holds: states by ZeRO, pipeline and tensor group; activations of all microbatches in flight."""

from math import isclose
from random import Random
from typing import NamedTuple

from tinydist.lab.author import Target, Wrong, alone, exercise, mistake

from .chapter import BY_HAND, gpt, numbers

PERCENT = 2
TURNS = ("pp", "tp", "dp", "zero", "microbatches", "microbatch")


class Plan(NamedTuple):
    pp: int = 1
    tp: int = 1
    dp: int = 1
    zero: int = 0
    microbatches: int = 1
    microbatch: int = 1
    sequence_parallel: bool = False
    selective: bool = False

    def __str__(self):
        said = [f"{name} {getattr(self, name)}" for name in TURNS]
        said += ["sequence parallel"] * self.sequence_parallel + ["selective recomputation"] * self.selective
        return ", ".join(said)


SMALL, M22, M175, M530, M1008 = (
    gpt(12, 1024, 16, 32000, 512),
    gpt(48, 6144, 64),
    gpt(96, 12288, 96),
    gpt(105, 20480, 128),
    gpt(128, 25600, 160),
)
NAMES = {SMALL: "a small GPT", M22: "22B", M175: "GPT-3 175B", M530: "530B", M1008: "1T"}
PLANS = [
    (SMALL, Plan(), 0),
    (SMALL, Plan(microbatches=4, microbatch=2), 0),
    (SMALL, Plan(tp=4, microbatches=3), 0),
    (SMALL, Plan(tp=4, sequence_parallel=True), 0),
    (SMALL, Plan(tp=2, selective=True), 0),
    (SMALL, Plan(dp=4, zero=1), 0),
    (SMALL, Plan(dp=4, zero=2), 0),
    (SMALL, Plan(dp=4, zero=3), 0),
    (SMALL, Plan(dp=4), 0),
    (SMALL, Plan(pp=6, microbatches=8), 1),
    (SMALL, Plan(pp=4, microbatches=8), 0),
    (SMALL, Plan(pp=4, microbatches=8), 3),
    (SMALL, Plan(pp=4, microbatches=2), 0),
    (M22, Plan(tp=8, microbatch=4), 0),
    (M22, Plan(tp=8, microbatch=4, sequence_parallel=True, selective=True), 0),
    (M175, Plan(8, 8, 12, 1, 16, 1, True, True), 0),
    (M175, Plan(8, 8, 12, 1, 16, 1, True, True), 7),
    (M530, Plan(35, 8, 9, 0, 280, 1, True), 17),
    (M1008, Plan(64, 8, 1, 0, 512, 1), 0),
    (M1008, Plan(64, 8, 6, 2, 512, 1, True, True), 0),
]


def drawn(seed):
    """Any model and plan."""
    draw = Random(seed)
    pp, tp = draw.choice((1, 2, 3, 5, 8)), draw.choice((1, 2, 4, 8))
    heads = 8 * draw.randint(1, 12)
    model = gpt(
        pp * draw.randint(1, 6),
        draw.choice((64, 96, 128)) * heads,
        heads,
        1000 * draw.randint(8, 200),
        256 * draw.randint(1, 32),
    )
    sizes = draw.choice((1, 2, 7)), draw.randint(0, 3), draw.randint(1, 12), draw.randint(1, 4)
    return model, Plan(pp, tp, *sizes, tp > 1 and draw.random() < 0.5, draw.random() < 0.5), draw.randrange(pp)


def test_cases():
    for model, plan, rank in [*PLANS, *map(drawn, range(24))]:
        where = f", place {rank} of its pipeline" if plan.pp > 1 else ""
        name = NAMES.get(model) or f"{model.layers} layers of {model.width} with {model.heads} heads"
        yield alone(lambda given=(model, plan, rank): given, f"{name}, {plan}{where}")


class Within(Target):
    """So many percent: a bias more or less is no mistake."""

    decides = True

    def __init__(self, name, holds, *variants):
        super().__init__(holds)
        self.name, self.variants = name, [mistake(*each) for each in variants]

    def mistaken(self, exercise, trial, right, earlier=()):
        """The mistake, or variant, that is nearest in most cases."""
        trials = [trial]
        for each in exercise.cases:
            trials.append(type(trial)(trial.program, each))
        near = {
            each.words: sum(self.gives(exercise, each, other) for other in trials)
            for each in (*exercise.mistakes, *self.variants)
            if self.gives(exercise, each, trial)
        }
        return {2: max(near, key=near.get)} if near else {}

    def gives(self, exercise, mistake, trial):
        mine = self.seen(trial)
        return mine is not None and bool(self.alike(mine, self.seen(exercise.run(trial.case, mistake)), None))

    def judge(self, exercise, trial, right):
        numbers(trial.returned[0], right.returned[0])
        mine, its = self.seen(trial), self.seen(right)
        if not isclose(mine, its, rel_tol=PERCENT / 100):
            raise Wrong(f"{self.name} take {mine:,.0f} bytes, {mine / its:.4g} times what is right")

    def seen(self, trial):
        return None if trial.error else trial.returned[0][self.name]

    def alike(self, mine, other, right):
        """Nearer than what is right is to the answer."""
        return 2 * isclose(mine, other, rel_tol=PERCENT / 1000)


SHARDED, FLYING = "(plan.dp if plan.zero >= {} else 1)", "min(plan.pp - rank, plan.microbatches)"
AROUND = "10 / (plan.tp if plan.sequence_parallel else 1)"
MAPS = "5 * model.heads * model.sequence / (model.width * plan.tp)"


@exercise(
    title="The bytes of a plan",
    minutes=30,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        BY_HAND,
        Within(
            "states",
            f"within {PERCENT} %, for all stages of ZeRO, with pipelines and tensor groups; up to 1T parameters",
            (
                "Where both ends are one stage, the table is there once: it is the head as well",
                "rank == plan.pp - 1 > 0",
                "rank == plan.pp - 1",
            ),
            (
                "Stage 1 shards Adam's states, and stage 2 gradients, too: it is the other way round here",
                "adam = 12 / (plan.dp if plan.zero >= 1",
                "adam = 12 / (plan.dp if plan.zero >= 2",
                "gradients = 4 / (plan.dp if plan.zero >= 2",
                "gradients = 4 / (plan.dp if plan.zero >= 1",
            ),
            (
                "The table of positions is not dealt out over the tensor group",
                "(model.vocabulary / plan.tp + model.sequence)",
                "(model.vocabulary / plan.tp + model.sequence / plan.tp)",
            ),
            (
                "The first stage has a table of positions, too",
                "(model.vocabulary / plan.tp + model.sequence)",
                "(model.vocabulary / plan.tp)",
            ),
            (
                "The table of tokens is dealt out over the tensor group",
                "(model.vocabulary / plan.tp + model.sequence)",
                "(model.vocabulary + model.sequence)",
                "    parameters += model.vocabulary / plan.tp *",
                "    parameters += model.vocabulary *",
            ),
            ("The first stage has a table of tokens", "if rank == 0:", "if False:"),
            ("Only the first stage has tables, and the last one a head", "if rank == 0:", "if True:"),
            ("Matrices are dealt out over the tensor group", "model.width**2 / plan.tp", "model.width**2"),
            ("A stage has layers / pp layers", "model.layers // plan.pp", "model.layers"),
            ("A layer has 12 width^2 parameters: 4 of attention and 8 of the MLP", "layers * 12", "layers * 8"),
            ("A layer has 12 width^2 parameters: 4 of attention and 8 of the MLP", "layers * 12", "layers * 4"),
            ("Adam's states have 12 bytes: both moments and the weights in fp32", "adam = 12", "adam = 8"),
            (
                "Adam's states are sharded from stage 1 on",
                "adam = 12 / (plan.dp if plan.zero >= 1 else 1)",
                "adam = 12",
            ),
            (
                "Gradients are sharded from stage 2 on",
                "gradients = 4 / (plan.dp if plan.zero >= 2 else 1)",
                "gradients = 4",
            ),
            ("Weights are sharded in stage 3", "weights = 2 / (plan.dp if plan.zero >= 3 else 1)", "weights = 2"),
            ("ZeRO 0 shards nothing", "plan.zero >= 1", "plan.zero >= 0"),
        ),
        Within(
            "activations",
            f"within {PERCENT} %, with and without sequence parallelism and recomputation, at any place of a pipeline. "
            "The published 22B model: 63.6 GB, and 10.3 GB with both",
            (
                "Selective recomputation spares all maps, of 5 heads s^2 b bytes, and nothing else",
                "    kept = tokens",
                "    around, maps = (2, 0) if plan.selective else (around, maps)\n    kept = tokens",
                "24 / plan.tp",
                "(0 if plan.selective else 24 / plan.tp)",
            ),
            (
                "Selective recomputation spares the maps of all three, and 2 of 5 are left here",
                f"0 if plan.selective else {MAPS}",
                f"0.4 * {MAPS} if plan.selective else {MAPS}",
            ),
            (
                "Selective recomputation spares the maps of all three, and 3 of 5 are left here",
                f"0 if plan.selective else {MAPS}",
                f"0.6 * {MAPS} if plan.selective else {MAPS}",
            ),
            ("Maps are dealt out over the tensor group, by heads", MAPS, MAPS.replace(" * plan.tp", "")),
            ("24 of the 34 are dealt out over the tensor group", "24 / plan.tp", "24"),
            (
                "All of the 34 are whole here: a tensor group deals out 24 of them, and sequence parallelism the rest",
                "24 / plan.tp",
                "24",
                AROUND,
                "10",
            ),
            ("The 10 are dealt out where sequence parallelism is on, and not else", AROUND, "10"),
            ("A microbatch has `microbatch` sequences", "plan.microbatch * model.sequence", "model.sequence"),
            (
                "These are the activations of one layer: a stage has layers / pp",
                "in_flight * layers * kept",
                "in_flight * kept",
            ),
            ("A stage has layers / pp layers", "in_flight * layers * kept", "in_flight * model.layers * kept"),
            ("One microbatch is counted: by 1F1B place r has pp - r in flight", FLYING, "1"),
            (
                "Place r of the pipeline, from 0, has pp - r microbatches in flight",
                FLYING,
                "min(max(1, plan.pp - rank - 1), plan.microbatches)",
            ),
            (
                "Place r of the pipeline, from 0, has pp - r microbatches in flight, and not one more",
                FLYING,
                "min(plan.pp - rank + 1, plan.microbatches)",
            ),
            (
                "The first place has most microbatches in flight, and the last one has one",
                FLYING,
                "min(rank + 1, plan.microbatches)",
            ),
            ("Activations have 16 bits: 34 s b h counts bytes already", "return {", "kept *= 2\n    return {"),
            (
                "The ranks of dp have other sequences: each rank holds its own, and not a part of them",
                "in_flight * layers * kept",
                "in_flight * layers * kept / plan.dp",
            ),
        ),
    ],
    mistakes=[
        mistake("Gradients are summed up in fp32 here: 4 bytes, not 2", "gradients = 4 /", "gradients = 2 /"),
        mistake(
            "Weights or gradients are sharded too early: stage 1 shards Adam's states alone, stage 2 gradients, too, "
            "and only stage 3 the weights",
            SHARDED.format(2),
            SHARDED.format(1),
            SHARDED.format(3),
            SHARDED.format(2),
        ),
        mistake(
            "The last stage has a table of tokens, too: the logits are made there",
            "if rank == plan.pp - 1 > 0:",
            "if False:",
        ),
        mistake(
            "1F1B runs a backward as soon as it can, and so place r of the pipeline never has more than pp - r "
            "microbatches in flight: all of them would be GPipe",
            FLYING,
            "plan.microbatches",
        ),
        mistake(
            "Later places have fewer microbatches in flight: the last one runs backward at once, and place r has pp - "
            "r",
            FLYING,
            "min(plan.pp, plan.microbatches)",
        ),
        mistake("A step of few microbatches has no more in flight than there are", FLYING, "plan.pp - rank"),
        mistake(
            "Without sequence parallelism 10 of the 34 are whole on each rank: the inputs of attention, MLP and norms, "
            "and the masks of the additions",
            AROUND,
            "10 / plan.tp",
        ),
        mistake("With selective recomputation no maps are kept", f"0 if plan.selective else {MAPS}", MAPS),
    ],
    hints=[
        "Two sums: bytes of a parameter times the parameters of this rank; bytes of a layer for one microbatch, times "
        "this rank's layers, times the microbatches in flight.",
        "Parameters: 12 width^2 / tp for each of layers / pp; vocabulary / tp times width for a table, at the ends of "
        "the pipeline. Of the 2 + 4 + 12 bytes, stage 1 divides the last by dp, stage 2 the last two, stage 3 all.",
        "With s b h = sequence microbatch width, a layer keeps s b h (10 + 24/tp + 5 heads sequence / (width tp)) "
        "bytes. Sequence parallelism divides the 10, selective recomputation drops the last term.",
        "Place 0 runs pp forwards before its first backward, the next one pp - 1, the last one 1, unless there are "
        "fewer microbatches.",
    ],
    why="Whether a plan fits can be known to within a few percent before anyone has rented a GPU. And the sum shows "
    "where to save: at place 0 of a deep pipeline activations decide, not the states that ZeRO shards.",
)
def bytes_of_plan(model, plan, rank):
    """How many bytes of states and of activations does a GPU hold, at place ``rank`` (from 0) of its pipeline?

    Return {"states": ..., "activations": ...}, each within 2 %. A parameter has 2 bytes, its gradient, in fp32, 4, and
    Adam's states 12. Biases and norms are too few to count. Activations are those of the layers, when most microbatches
    are in flight and nothing has been computed again yet; embedding, loss and messages are not counted.

    ``model`` is a GPT: ``layers``, ``width``, ``heads``, a ``vocabulary``, a ``sequence`` of so many tokens. Its MLP is
    4 width wide. The first stage of the pipeline has the table of tokens and that of positions (not dealt out), the
    last one the head, which is the same table of tokens: where both are one stage, there is one.

    ``plan`` has the stages ``pp``, over which the layers divide; the ranks ``tp`` of a tensor group, over which
    matrices and the table of tokens are dealt out; ``dp``, over which ``zero`` (0 to 3) shards as in chapter 06. A step
    runs so many ``microbatches`` of ``microbatch`` sequences each, by 1F1B. A layer keeps what chapter 07b counts, in
    16 bits with dropout: 34 s b h + 5 heads s^2 b bytes on one GPU. ``sequence_parallel`` and ``selective``
    (attention's maps are computed again) say whether these are on.
    """
    layers = model.layers // plan.pp
    # ? The parameters of this rank; the bytes of each
    parameters = layers * 12 * model.width**2 / plan.tp
    if rank == 0:
        parameters += (model.vocabulary / plan.tp + model.sequence) * model.width
    if rank == plan.pp - 1 > 0:
        parameters += model.vocabulary / plan.tp * model.width
    weights = 2 / (plan.dp if plan.zero >= 3 else 1)
    gradients = 4 / (plan.dp if plan.zero >= 2 else 1)
    adam = 12 / (plan.dp if plan.zero >= 1 else 1)
    # ? What a layer keeps of a microbatch; how many are in flight?
    tokens = plan.microbatch * model.sequence
    around = 10 / (plan.tp if plan.sequence_parallel else 1)
    maps = 0 if plan.selective else 5 * model.heads * model.sequence / (model.width * plan.tp)
    kept = tokens * model.width * (around + 24 / plan.tp + maps)
    in_flight = min(plan.pp - rank, plan.microbatches)
    return {"states": parameters * (weights + gradients + adam), "activations": in_flight * layers * kept}
