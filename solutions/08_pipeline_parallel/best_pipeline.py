"""A design: how many stages, how many replicas and which microbatches, for a number of GPUs and a batch?"""

from tinydist.lab.author import Malformed, Own, Varied, alone, exercise, mistake

SECONDS = {1: 0.40, 2: 0.70, 4: 1.30, 8: 2.55}  # of a microbatch, forward and backward, on one GPU
SMALL_ONES_SLOW = {1: 1.0, 2: 1.2, 4: 2.0, 8: 3.9}
TO_THE_BYTE = "a stage that fits to the byte"
FORMULAS = ("tinydist.hardware", "tinydist.planner", "tinydist.pipeline_parallel")


def case(about, *arguments):
    return alone(lambda: arguments, about)


def test_cases():
    #    gpus, sequences, seconds, parameters, width, tokens, activations, room, speed
    yield case("8 GPUs, all fits", 8, 64, SECONDS, 1e9, 2048, 2048, 4e9, 80e9, 200e9)
    yield case("four stages or more", 16, 32, SECONDS, 18e9, 6144, 2048, 8e9, 80e9, 200e9)
    yield case("states too large for one GPU", 8, 64, SECONDS, 7e9, 4096, 2048, 4e9, 80e9, 200e9)
    yield case("activations too large", 8, 64, SECONDS, 3e9, 4096, 2048, 30e9, 64e9, 200e9)
    yield case("few sequences", 16, 32, SECONDS, 12e9, 5120, 2048, 8e9, 80e9, 200e9)
    yield case("a slow network", 8, 64, SECONDS, 4e9, 4096, 2048, 4e9, 80e9, 1e9)
    yield case("small microbatches that are slow", 12, 96, SMALL_ONES_SLOW, 9e9, 4096, 2048, 12e9, 80e9, 200e9)
    yield case("two stages are enough", 2, 16, SECONDS, 4e9, 4096, 2048, 2e9, 40e9, 10e9)
    yield case("one stage or two, equally fast", 2, 16, {1: 0.5}, 1e9, 2048, 2048, 2e9, 80e9, 16e9)
    yield case(TO_THE_BYTE, 2, 16, SECONDS, 1e9, 2048, 2048, 2e9, 32e9, 200e9)
    yield case("nothing fits", 4, 16, SECONDS, 30e9, 8192, 2048, 8e9, 80e9, 200e9)
    yield case("one GPU", 1, 8, SECONDS, 1e9, 2048, 2048, 2e9, 80e9, 200e9)
    yield case("fewer microbatches than stages", 8, 8, SMALL_ONES_SLOW, 30e9, 8192, 2048, 10e9, 75e9, 50e9)


class Design(Varied):
    """Says of a choice that is not the best whether it fits."""

    def form(self, trial, rank, mine, its):
        if mine is None and its is not None:
            raise Malformed("it returned nothing (None), but something fits: a rank holds a part of each microbatch")
        super().form(trial, rank, mine, its)

    def general(self, trial, right):
        (mine,), (its,) = trial.returned, right.returned
        if its is None:
            return ""
        if mine[:2] == its[:2]:
            return "Stages and size are right"
        gpus, sequences, seconds, parameters, _, _, activations, room, _ = trial.case.arguments(0)
        stages, size, *_ = mine
        if stages not in range(1, gpus + 1) or size not in seconds or gpus % stages:
            return "Stages divide the GPUs, and the size of a microbatch is a key of `seconds`"
        replicas = gpus // stages
        if sequences % replicas or sequences // replicas % size:
            return "Replicas divide the sequences of the batch, and microbatches those of a replica"
        states = 16 * parameters / stages
        held = min(stages, sequences // replicas // size) * size * activations / stages
        if states + held > room:
            return (
                f"With stages = {stages} and size = {size} the first rank needs {states / 1e9:.3g} GB for parameters "
                f"and {held / 1e9:.3g} GB for activations, and has {room / 1e9:.3g} GB"
            )
        if trial.case.about == TO_THE_BYTE:
            return f"Stages = {stages} and size = {size} fit, but what takes all of the room, to the byte, fits, too"
        return (
            f"Stages = {stages} and size = {size} fit, but another pair is faster, or as fast with fewer stages. Count "
            "what a stage takes for a microbatch, how often in a step, and the all-reduce"
        )


@exercise(
    title="Design: stages, replicas and microbatches",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", "here it is arithmetic, and yours", FORMULAS),
        Design(
            "the stages and the microbatch of the shortest step that fits, and the bytes that a rank sends for both",
            names=["stages", "size", "bytes of the pipeline", "bytes of the gradients"],
            tell=False,
            whole=True,
            variants=[
                (
                    "It is half of what is right: a ring sends (p - 1)/p of the gradients twice, first to add up and "
                    "then to share, and they have 4 bytes",
                    "replicas * 4 * parameters",
                    "replicas * 2 * parameters",
                ),
                (
                    "Gradients go round among the replicas of a stage, and not among all GPUs",
                    "2 * (replicas - 1) / replicas",
                    "2 * (gpus - 1) / gpus",
                ),
                (
                    "A ring sends (p - 1)/p of the gradients twice, and not all of them",
                    "2 * (replicas - 1) / replicas",
                    "(2 if replicas > 1 else 0)",
                ),
                (
                    "The gradients take time as well: they are sent behind the last backward",
                    " + of_gradients / speed",
                    "",
                ),
                ("An output has 2 bytes a number", "tokens * width * 2", "tokens * width * 4"),
                ("Bytes are asked for: an output has 2 bytes a number", "tokens * width * 2", "tokens * width"),
                ("An output has a number for each token and each of `width`", "tokens * width * 2", "width * 2"),
                (
                    "A rank sends what is its own: those of all stages are counted",
                    "min(stages - 1, 2)",
                    "2 * (stages - 1)",
                ),
                (
                    "A rank sends the sequences of its replica, and not of the whole batch",
                    "* sequences // replicas *",
                    "* sequences *",
                ),
                (
                    "A rank sends all sequences of its replica, and not those of one microbatch",
                    "* sequences // replicas * tokens",
                    "* size * tokens",
                ),
                ("A parameter has 16 bytes of states", "16 * parameters / stages", "12 * parameters / stages"),
                (
                    "The first rank holds as many microbatches as there are stages, and not one more",
                    "min(stages, microbatches) *",
                    "min(stages + 1, microbatches) *",
                ),
                (
                    "The first rank holds as many microbatches as there are stages, and not one less",
                    "min(stages, microbatches) *",
                    "min(max(1, stages - 1), microbatches) *",
                ),
                ("Of pairs that are equally fast fewer stages are asked for", "step < best[0]", "step <= best[0]"),
                (
                    "The bubble has stages - 1 turns, and not stages",
                    "microbatches + stages - 1)",
                    "microbatches + stages)",
                ),
                (
                    "The bubble of twice stages - 1 turns is that of none: forward and backward are in `each` already",
                    "microbatches + stages - 1)",
                    "microbatches + 2 * (stages - 1))",
                ),
                ("A stage takes its part of the seconds", "* each / stages +", "* each +"),
                ("The shortest step is asked for, and not the longest", "step < best[0]", "step > best[0]"),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "The bubble is missing: a step takes microbatches + stages - 1 times what a stage needs for one",
            "(microbatches + stages - 1)",
            "microbatches",
        ),
        mistake(
            "GPipe holds all microbatches. 1F1B holds one for each stage, on the first rank",
            "min(stages, microbatches) *",
            "microbatches *",
        ),
        mistake(
            "A rank cannot hold more microbatches than there are",
            "min(stages, microbatches) *",
            "stages *",
        ),
        mistake(
            "Each replica gets its part of the batch: microbatches are counted there",
            "mine = sequences // replicas",
            "mine = sequences",
        ),
        mistake(
            "A rank has the gradients of its own stage, and all-reduces those alone",
            "4 * parameters / stages",
            "4 * parameters",
        ),
        mistake(
            "An all-reduce over n replicas sends 2 (n - 1)/n of the gradients",
            "2 * (replicas - 1) / replicas",
            "2",
        ),
        mistake(
            "With two stages there is no rank in the middle: each sends one way, outputs or gradients",
            "min(stages - 1, 2)",
            "2 * (stages > 1)",
        ),
        mistake(
            "A rank in the middle sends outputs to the next rank, and gradients to the one before: twice",
            "min(stages - 1, 2)",
            "min(stages - 1, 1)",
        ),
    ],
    hints=[
        "Try all pairs: how many stages, and how many sequences in a microbatch. Which pairs are possible? Which "
        "fit? Which of those is the fastest?",
        "Time: the way of M microbatches through P stages, each of which takes 1/P of what the whole model takes. And "
        "when all is done, the all-reduce of one stage's gradients over the replicas.",
        "Memory: 16 bytes for each parameter of a stage, and what rank 0 of 1F1B holds at the worst moment. What if "
        "there are fewer microbatches than stages?",
        "Bytes: all tokens of a replica go through, so the size of a microbatch does not matter. How many neighbors "
        "does the busiest rank have?",
    ],
    why="This is what a planner does for a pipeline: all divisors, a test of memory, and the shortest step. More "
    "stages make room and a larger bubble, more replicas make fewer microbatches for each: so the best lies where the "
    "model just fits, and real runs have as few stages as they can.",
)
def best_pipeline(gpus, sequences, seconds, parameters, width, tokens, activations, room, speed):
    """The pipeline with the shortest step: (stages, size, bytes of the pipeline, bytes of the gradients), or None.

    ``stages`` divide ``gpus``; ``gpus / stages`` replicas divide the batch of ``sequences``, of ``tokens`` tokens each.
    ``size`` is the number of sequences in a microbatch, a key of ``seconds``: what the whole model takes on one GPU for
    forward and backward of such a microbatch. It divides the sequences of a replica. All stages are alike, and the
    schedule is 1F1B, whose messages are hidden. After it, a rank all-reduces its gradients (4 bytes each) over the
    replicas by a ring, at ``speed`` bytes/s, and nothing hides that.

    A rank needs 16 bytes for each of its parameters, and what the first rank of 1F1B holds. ``activations`` are the
    bytes of one sequence in the whole model. Both must fit in ``room`` bytes. None, if nothing fits.

    The bytes are what the busiest rank sends per step: of activations and their gradients (``width`` numbers of 2 bytes
    for each token), and of the all-reduce. If two are equally fast, take fewer stages.
    """
    best = None
    for stages in range(1, gpus + 1):
        replicas = gpus // stages
        if gpus % stages or sequences % replicas:
            continue
        mine = sequences // replicas
        for size, each in seconds.items():
            # ? Is it possible? Does it fit? How long does a step take, and what is sent?
            microbatches = mine // size
            if mine % size or microbatches == 0:
                continue
            if 16 * parameters / stages + min(stages, microbatches) * size * activations / stages > room:
                continue
            of_gradients = 2 * (replicas - 1) / replicas * 4 * parameters / stages
            step = (microbatches + stages - 1) * each / stages + of_gradients / speed
            of_pipeline = min(stages - 1, 2) * sequences // replicas * tokens * width * 2
            if best is None or step < best[0]:
                best = step, (stages, size, of_pipeline, of_gradients)
            # .
    return best and best[1]
