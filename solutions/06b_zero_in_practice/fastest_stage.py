"""Which stage to take, and whether to recompute: the fastest plan that fits."""

from math import isclose, isfinite

from tinydist.lab.author import Malformed, Own, Target, Wrong, alone, also, exercise, mistake

from .chapter import SOLVED

GB, NEAR = 1e9, 1e-6
GIVEN = (
    "parameters",
    "ranks",
    "device_gb",
    "kept_gb",
    "recomputed_gb",
    "tokens",
    "microbatches",
    "teraflops",
    "gigabits",
)
NAMES = ("held", "sent", "seconds")
FORM = '{"stage": ..., "recompute": ..., "held": ..., "sent": ..., "seconds": ...}'
PLANS = [
    (7.5e9, 64, 80, 18, 1.3, 4096, 1, 150, 400),
    (7.5e9, 64, 80, 36, 2.6, 8192, 4, 150, 400),
    (7.5e9, 64, 40, 18, 1.3, 4096, 2, 150, 400),
    (7.5e9, 64, 24, 18, 1.3, 4096, 1, 150, 100),
    (1.3e9, 8, 80, 9, 0.8, 2048, 8, 150, 25),
    (1.3e9, 8, 18, 9, 0.8, 2048, 8, 150, 25),
    (1.3e9, 8, 14, 9, 0.8, 8192, 2, 150, 200),
    (13e9, 8, 80, 20, 2, 4096, 4, 150, 2400),
    (13e9, 8, 40, 30, 9, 4096, 4, 150, 2400),  # with recomputation it just does not fit
    (70e9, 512, 80, 60, 4, 4096, 2, 400, 400),
    (70e9, 512, 40, 60, 4, 16384, 1, 400, 400),
    (1e9, 8, 8, 1, 0.5, 2048, 4, 100, 25),  # stage 1 with recomputation holds exactly 8 GB
    (3e9, 1, 80, 10, 1, 2048, 2, 150, 25),
    (175e9, 8, 80, 10, 1, 2048, 1, 400, 400),
]
SMALL = 2 * 48 * 48  # parameters of a model that can be measured; with the bytes a parameter that a device has
MEASURED = [
    (SMALL, 2, bytes_of_one * SMALL / GB, 0, 0, 1, m, 1, 1) for bytes_of_one, m in ((13, 3), (10.5, 1), (9.5, 2))
]
WHAT = {
    1: "gradients are summed up over microbatches; one reduce-scatter of 4 bytes a number, one all-gather of 2",
    2: "each microbatch reduces its gradients, 4 bytes a number; the weights are published once, 2 bytes",
    3: "each microbatch gathers weights before forward and before backward, 2 bytes a number, and reduces its "
    "gradients, 4 bytes",
}
SHARDED = "(p if stage >= {} else 1)"
SENT = "{1: 4 + 2, 2: 4 * m + 2, 3: m * (2 + 2 + 4)}"


def test_cases():
    for given in PLANS + MEASURED:
        about = ", ".join(f"{name}={value:.10g}" for name, value in zip(GIVEN, given))
        yield alone(lambda given=given: given, about)


def planned(exercise, case, plan, *mistakes):
    """What the solution says of this plan, whether it fits or not."""
    number = 2 * (plan["stage"] - 1) + plan["recompute"]
    this = also("    fitting = [", f"    return plans[{number}]\n    fitting = [")
    return exercise.run(case, *mistakes, this).returned[0]


def near(a, b):
    return isclose(a, b, rel_tol=NEAR, abs_tol=1e-9)


HELD, COMPUTE = "held = parameters * (weights + gradients + states)", "(4 / 3 if recompute else 1)"
VARIANTS = [
    mistake("Stage 2 shards the gradients, and holds them whole here", SHARDED.format(2), SHARDED.format(3)),
    mistake("Stage 3 shards the weights, and holds them whole here", SHARDED.format(3), "1"),
    mistake("The states are whole here: each stage shards them", "12 / p", "12"),
    mistake("Gradients and states are fewer bytes with ZeRO, and not none", "gradients = 4 /", "gradients = 0 /"),
    mistake(
        "Recomputation takes a third more of compute, and sends no byte more",
        "max(compute, wires)",
        "max(compute, wires * (4 / 3 if recompute else 1))",
    ),
    mistake(
        "Recomputation adds one forward pass to three: a third, and not a half", COMPUTE, "(3 / 2 if recompute else 1)"
    ),
    mistake("Recomputation adds one forward pass: it does not take twice as long", COMPUTE, "(2 if recompute else 1)"),
    mistake("Recomputation takes more time, and not less", COMPUTE, "(3 / 4 if recompute else 1)"),
    mistake("A step computes all of its microbatches: this is one", "* tokens * m /", "* tokens /"),
    mistake("A byte has 8 bits, and the wires are in bits per second", "8 * sent", "sent"),
    mistake(
        "Of p ranks each has 1/p already: (p - 1)/p of the bytes are sent", "(p - 1) / p * parameters", "parameters"
    ),
    mistake(
        "A ring sends (p - 1)/p of the bytes, and not p - 1 times", "(p - 1) / p * parameters", "(p - 1) * parameters"
    ),
    mistake("A GB is 10^9 bytes", "activations * 1e9", "activations * 2**30"),
    mistake("Forward and backward are 6 FLOPs for each parameter and token", "compute = 6 *", "compute = 2 *"),
    mistake("Forward and backward are 6 FLOPs for each parameter and token", "compute = 6 *", "compute = 8 *"),
    mistake(
        "The tokens are those of each rank: its FLOPs are not divided by p", "* tokens * m /", "* tokens * m / p /"
    ),
    mistake(
        "A step publishes the weights once in stages 1 and 2: 2 bytes a number", SENT, "{1: 4, 2: 4 * m, 3: 8 * m}"
    ),
    mistake(
        "Stage 1 reduces once in a step: it sums up its gradients over the microbatches",
        SENT,
        "{1: 4 * m + 2, 2: 4 * m + 2, 3: 8 * m}",
    ),
    mistake(
        "Stage 2 publishes its weights once in a step, and not for each microbatch", SENT, "{1: 6, 2: 6 * m, 3: 8 * m}"
    ),
    mistake(
        "Gradients are reduced by a reduce-scatter: an all-reduce sends twice as much",
        SENT,
        "{1: 10, 2: 8 * m + 2, 3: 12 * m}",
    ),
]


class Numbers(Target):
    """Of the plan that the answer names."""

    name, decides = "held, sent, seconds", True

    def judge(self, exercise, trial, right):
        got = trial.returned[0]
        if got is not None:
            self.form(got)
            name = self.wrong(got, planned(exercise, trial.case, got))
            if name:
                raise Wrong(self.said(name, got, *trial.arguments[0]))

    def form(self, got):
        if not isinstance(got, dict) or set(got) != {"stage", "recompute", *NAMES}:
            raise Malformed(f"it returned {got!r}, where {FORM} or None is right")
        if type(got["stage"]) is not int or not 1 <= got["stage"] <= 3 or type(got["recompute"]) is not bool:
            raise Malformed(
                f"it names stage {got['stage']!r} and recompute {got['recompute']!r}, where 1, 2 or 3 and True or "
                "False are right"
            )
        for name in NAMES:
            if type(got[name]) not in (int, float) or not isfinite(got[name]):
                raise Malformed(f"{name} is {got[name]!r}, where a number is right")

    def wrong(self, mine, its):
        """The first that is not right."""
        return next((name for name in NAMES if not near(mine[name], its[name])), None)

    def said(self, name, got, parameters, ranks, device_gb, kept_gb, recomputed_gb, tokens, microbatches, *speeds):
        plan = f"your stage {got['stage']} {'with' if got['recompute'] else 'without'} recomputation"
        of_one = (got["held"] - (recomputed_gb if got["recompute"] else kept_gb) * GB) / parameters
        times = f"{microbatches} microbatch{'es' * (microbatches > 1)}"
        return {
            "held": f"{plan} holds {got['held']:,.10g} bytes, without activations {of_one:.5g} a parameter. Which of "
            "weights (2), gradients (4) and states (12) are divided by p?",
            "sent": f"{plan} sends {got['sent']:,.10g} bytes a rank in a step of {times}: {WHAT[got['stage']]}",
            "seconds": f"{plan} takes {got['seconds']:.6g} seconds: the larger of compute (6 FLOPs for each parameter "
            f"and token, in {times}) and of {got['sent']:,.10g} bytes at {speeds[1]} Gbit/s",
        }[name]

    def mistaken(self, exercise, trial, right, earlier=()):
        got = trial.returned[0]
        name = self.wrong(got, planned(exercise, trial.case, got))
        for each in (*exercise.mistakes, *VARIANTS):
            other = planned(exercise, trial.case, got, each)
            if near(got[name], other[name]) and self.wrong(got, {**other, "seconds": got["seconds"]}) is None:
                return {2: each.words}
        return {}


class Choice(Target):
    name = "choice"

    def judge(self, exercise, trial, right):
        got, its = trial.returned[0], right.returned[0]
        if got is None and its:
            raise Wrong("it finds no plan that fits, and there is one. Which plan holds least?")
        if got is None or (its and all(got[key] == its[key] for key in ("stage", "recompute"))):
            return
        held, device_gb = got["held"], trial.arguments[0][2]
        plan = f"stage {got['stage']} {'with' if got['recompute'] else 'without'} recomputation"
        if held > device_gb * GB * (1 + NEAR):
            none = ". If no plan fits, None is right" if its is None else ""
            raise Wrong(
                f"{plan} holds {held / GB:,.4g} GB with activations, and a device has {device_gb:.4g}: it does not "
                f"fit{none}"
            )
        if got["seconds"] > its["seconds"] * (1 + NEAR):
            better = f"stage {its['stage']} {'with' if its['recompute'] else 'without'} recomputation"
            if abs(its["held"] - device_gb * GB) < NEAR * its["held"]:
                better += ", which fills the device to the byte, and fits"
            raise Wrong(
                f"{plan} fits, and another plan that fits is faster: {its['seconds']:.4g} seconds a step, {better}"
            )
        if held > its["held"] * (1 + NEAR):
            raise Wrong(f"{plan} is as fast as another plan that fits, and that one holds less")
        raise Wrong(f"{plan} is as good as another plan, and of those the lowest stage without recomputation is right")


@exercise(
    title="Plan: the fastest stage that fits",
    minutes=25,
    difficulty=4,
    test_cases=test_cases,
    targets=[
        Own("it predicts, and runs no stage", "predict it", SOLVED | {"tinydist.launching": "tinydist.launch"}),
        Numbers(
            f"those of the plan that you name, for {len(PLANS + MEASURED)} settings; 7.5 billion parameters on 64 "
            f"ranks among them, and {len(MEASURED)} of a small model, to the byte as they were measured"
        ),
        Choice(
            "of the plans that fit, the fastest; then the one that holds least; then the lowest stage, without "
            "recomputation"
        ),
    ],
    mistakes=[
        mistake("Activations are missing: they are on the device beside the model states", " + activations * 1e9", ""),
        mistake(
            "Gradients count 2 bytes here. They are kept in fp32, 4 bytes a number",
            "gradients = 4 /",
            "gradients = 2 /",
        ),
        mistake(
            "The optimizer's states count 8 bytes here: two moments. In mixed precision it has fp32 copies of the "
            "weights, too",
            "states = 12 /",
            "states = 8 /",
        ),
        mistake(
            "Gradients or weights are sharded here as the states are: stage 1 shards states alone, stage 2 the "
            "gradients, too, and only stage 3 the weights",
            SHARDED.format(2),
            SHARDED.format(1),
        ),
        mistake(
            "This is a step of one microbatch. Each reduces its gradients in stages 2 and 3, and in stage 3 it gathers "
            "weights, too",
            SENT,
            "{1: 6, 2: 6, 3: 8}",
        ),
        mistake(
            "2 bytes a number are missing: gradients are reduced in fp32, 4 bytes a number, and stage 3 gathers "
            "weights twice, before forward and before backward",
            SENT,
            "{1: 2 + 2, 2: 2 * m + 2, 3: m * (2 + 2 + 2)}",
        ),
        mistake(
            "Compute and communication are added up. They overlap: a step takes the larger of the two",
            "max(compute, wires)",
            "compute + wires",
        ),
        mistake(
            "Recomputation is free here: it is one more forward pass, a third of forward and backward",
            "(4 / 3 if recompute else 1)",
            "1",
        ),
    ],
    hints=[
        "Six plans: three stages, with and without recomputation. For each, three numbers: what a rank holds, what it "
        "sends, and how long it takes. Put them into a list, leave out what does not fit, and take the min by a key.",
        "Held: 2 bytes a parameter of weights, 4 of gradients, 12 of states. Stage 1 divides the states by p, stage 2 "
        "the gradients, too, stage 3 all. Activations come on top, whole: kept or recomputed.",
        "Sent: a collective sends (p-1)/p of its bytes; a reduce-scatter has 4 bytes a parameter, an all-gather 2. "
        "Which of them run once in a step, and which for every microbatch?",
        "Seconds: compute is 6 * parameters * tokens FLOPs a microbatch, 4/3 of it with recomputation; the wires take "
        "8 bits for each byte; the larger counts. min(fitting, key=..., default=None).",
    ],
    why="The order of stages is no ladder that one climbs until it fits: with many microbatches stage 1 with "
    "recomputation may be faster than stage 2 without, and on fast wires it is the other way round. Real steps differ "
    "from this plan, by up to a fifth in the measurements of this chapter: so measure the best two.",
)
def fastest_stage(parameters, ranks, device_gb, kept_gb, recomputed_gb, tokens, microbatches, teraflops, gigabits):
    """Plan training with Adam: the ZeRO stage, with or without recomputation, that fits and takes least time.

    Weights have 16 bits; gradients are held and reduced in fp32. Return {"stage": 1 to 3, "recompute": True or False,
    "held": ..., "sent": ..., "seconds": ...}, or None if nothing fits; of plans as fast, the one that holds least, and
    of those the lowest stage, without recomputation. ``held``: bytes of model states and activations on a device at
    the end of backward; it must be at most ``device_gb`` GB of 10^9 bytes. Activations are ``kept_gb``, or
    ``recomputed_gb`` with recomputation, on each device. ``sent``: bytes that a rank sends in a step. ``seconds``: the
    larger of compute, 6 FLOPs for each parameter and token at ``teraflops`` TFLOP/s, with a third more for
    recomputation, and of sending at ``gigabits`` Gbit/s.

    A step has so many ``microbatches`` of ``tokens`` tokens on each rank. Stage 1 sums up its gradients and reduces
    once; stage 2 reduces and frees those of each microbatch; stage 3 gathers weights twice in each, too.
    """
    p, m = ranks, microbatches
    plans = []
    for stage in (1, 2, 3):
        # ? With and without recomputation: what does a rank hold, what does it send, how long does a step take?
        weights = 2 / (p if stage >= 3 else 1)
        gradients = 4 / (p if stage >= 2 else 1)
        states = 12 / p
        passes = {1: 4 + 2, 2: 4 * m + 2, 3: m * (2 + 2 + 4)}[stage]
        sent = passes * (p - 1) / p * parameters
        for recompute in (False, True):
            activations = recomputed_gb if recompute else kept_gb
            held = parameters * (weights + gradients + states) + activations * 1e9
            compute = 6 * parameters * tokens * m / (teraflops * 1e12) * (4 / 3 if recompute else 1)
            wires = 8 * sent / (gigabits * 1e9)
            numbers = {"held": held, "sent": sent, "seconds": max(compute, wires)}
            plans.append({"stage": stage, "recompute": recompute, **numbers})
    # ? Of those that fit, which one?
    fitting = [plan for plan in plans if plan["held"] <= device_gb * 1e9]
    return min(fitting, key=lambda plan: (plan["seconds"], plan["held"], plan["stage"]), default=None)
