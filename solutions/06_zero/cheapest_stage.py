"""Which stage to take: the one that sends least, of those that fit."""

from math import isclose, isfinite

from tinydist.lab.author import Malformed, Own, Target, Wrong, alone, also, exercise, mistake

from .chapter import SOLVED

GB, NEAR = 1e9, 1e-6
GIVEN = ("parameters", "ranks", "device_gb", "activations_gb", "microbatches", "gigabits")
NAMES = ("held", "sent", "seconds")
PLANS = [
    (13e9, 8, 40, 2, 1, 200),
    (13e9, 8, 80, 2, 1, 200),
    (13e9, 8, 80, 2, 4, 200),
    (13e9, 8, 60, 2, 4, 400),
    (14e9, 16, 40, 1, 1, 100),  # not in 40 GB, but in 40 GiB
    (10e9, 8, 40, 5, 1, 100),  # with activations stage 2 does not fit
    (1e9, 8, 40, 4, 1, 25),
    (1e9, 8, 40, 4, 8, 25),
    (1e9, 8, 8, 2.5, 2, 100),  # stage 1 holds exactly 8 GB
    (7.5e9, 64, 80, 1, 1, 200),
    (175e9, 64, 80, 10, 2, 400),
    (175e9, 8, 80, 1, 1, 400),
    (1e9, 1, 40, 4, 2, 25),
    (3e9, 1, 40, 0, 1, 25),
]
SMALL = 2 * 48 * 48  # parameters of a model that can be measured; with the bytes a parameter that a device has
MEASURED = [(SMALL, 2, bytes_of_one * SMALL / GB, 0, m, 1) for bytes_of_one, m in ((11, 3), (9.5, 1), (8.5, 2))]
WHAT = (
    "gradients are summed up over microbatches; then an all-reduce, which is a reduce-scatter and an all-gather",
    "gradients are summed up over microbatches; then one collective reduces them, and one publishes the weights",
    "each microbatch reduces its gradients; the weights are published once",
    "each microbatch gathers weights before forward and before backward, and reduces its gradients",
)
SHARDED, COUNT = "(p if stage >= {} else 1)", "(2, 2, m + 1, 3 * m)"


def test_cases():
    for given in PLANS + MEASURED:
        about = ", ".join(f"{name}={value:.10g}" for name, value in zip(GIVEN, given))
        yield alone(lambda given=given: given, about)


def planned(exercise, case, stage, *mistakes):
    """What the solution says of this stage, whether it fits or not."""
    this = also("    fitting = [", f"    return plans[{stage}]\n    fitting = [")
    return exercise.run(case, *mistakes, this).returned[0]


def near(a, b):
    return isclose(a, b, rel_tol=NEAR, abs_tol=1e-9)


class Numbers(Target):
    """Of the stage that the answer names."""

    name, decides = "held, sent, seconds", True

    def judge(self, exercise, trial, right):
        got = trial.returned[0]
        if got is not None:
            self.form(got)
            name = self.wrong(got, planned(exercise, trial.case, got["stage"]))
            if name:
                raise Wrong(self.said(name, got, *trial.arguments[0]))

    def form(self, got):
        if not isinstance(got, dict) or set(got) != {"stage", *NAMES}:
            right = '{"stage": ..., "held": ..., "sent": ..., "seconds": ...}'
            raise Malformed(f"it returned {got!r}, where {right} or None is right")
        if type(got["stage"]) is not int or not 0 <= got["stage"] <= 3:
            raise Malformed(f"it names stage {got['stage']!r}, and there are 0, 1, 2, 3")
        for name in NAMES:
            if type(got[name]) not in (int, float) or not isfinite(got[name]):
                raise Malformed(f"{name} is {got[name]!r}, where a number is right")

    def wrong(self, mine, its):
        """The first that is not right."""
        return next((name for name in NAMES if not near(mine[name], its[name])), None)

    def said(self, name, got, parameters, ranks, device_gb, activations_gb, microbatches, gigabits):
        stage, of_one = f"your stage {got['stage']}", (got["held"] - activations_gb * GB) / parameters
        return {
            "held": f"{stage} holds {got['held']:,.10g} bytes, without activations {of_one:.5g} a parameter. Which of "
            "weights (2), gradients (2) and states (12) are divided by p?",
            "sent": f"{stage} sends {got['sent']:,.10g} bytes a rank in a step. Count its collectives in a step of "
            f"{microbatches} microbatch{'es' * (microbatches > 1)}: {WHAT[got['stage']]}",
            "seconds": f"your {got['sent']:,.10g} bytes take {got['seconds']:.6g} seconds at {gigabits} Gbit/s: "
            "seconds = bits sent / bits a second",
        }[name]

    def mistaken(self, exercise, trial, right, earlier=()):
        got = trial.returned[0]
        name = self.wrong(got, planned(exercise, trial.case, got["stage"]))
        for each in exercise.mistakes:
            other = planned(exercise, trial.case, got["stage"], each)
            if near(got[name], other[name]) and self.wrong(got, {**other, "seconds": got["seconds"]}) is None:
                return {2: each.words}
        return {}


class Choice(Target):
    name = "choice"

    def judge(self, exercise, trial, right):
        got, its = trial.returned[0], right.returned[0]
        if got is None and its:
            raise Wrong("it finds no stage that fits, and there is one. Which stage holds least?")
        if got is None or (its and got["stage"] == its["stage"]):
            return
        _, ranks, device_gb, _, microbatches, _ = trial.arguments[0]
        stage, held, room = f"stage {got['stage']}", got["held"], device_gb * GB
        if held > room * (1 + NEAR):
            almost = " (A GB has 10^9 bytes, and a GiB 2^30.)" if held <= device_gb * 2**30 else ""
            none = " If no stage fits, None is right" if its is None else ""
            raise Wrong(
                f"{stage} holds {held / GB:,.4g} GB with activations, and a device has {device_gb:.4g}: it does not "
                f"fit.{almost}{none}"
            )
        if ranks == 1:
            raise Wrong(f"with one rank all stages send and hold the same, and then the lowest is right, not {stage}")
        less = f"sends less, with {microbatches} microbatch{'es' * (microbatches > 1)} a step"
        full = ". It holds all that a device has, and not more: it fits" if its["held"] == room else ""
        fewer = got["sent"] > its["sent"] * (1 + NEAR)
        raise Wrong(
            f"{stage} fits, but another one that fits {less if fewer else 'sends as much and holds less'}{full}"
        )


@exercise(
    title="Plan: the cheapest stage that fits",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("it predicts, and runs no stage", "predict it", SOLVED | {"tinydist.launching": "tinydist.launch"}),
        Numbers(
            f"those of the stage that you name, to the byte, for {len(PLANS + MEASURED)} settings; 13 billion "
            f"parameters on 8 x 40 GB among them, and {len(MEASURED)} of a small model, as the ledger and the meter of "
            "bytes have them"
        ),
        Choice("of the stages that fit, the one that sends least; then the one that holds least; then the lowest"),
    ],
    mistakes=[
        mistake(
            "Activations are missing: they are on the device beside the model states", " + activations_gb * 1e9", ""
        ),
        mistake(
            "Activations are not sharded: each rank has those of its own batch",
            "activations_gb * 1e9",
            "activations_gb * 1e9 / p",
        ),
        mistake(
            "Gradients or weights count 4 bytes here, as of fp32. Both have 16 bits; the fp32 copies of the weights "
            "are the optimizer's",
            "gradients = 2 /",
            "gradients = 4 /",
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
            COUNT,
            "(2, 2, 2, 3)",
        ),
        mistake(
            "A collective does not send the part that is a rank's own: (p-1)/p",
            "collectives * (p - 1) / p",
            "collectives",
        ),
        mistake("This is what all ranks send together", "(p - 1) / p", "(p - 1)"),
    ],
    hints=[
        "For each stage two numbers: what a rank holds, and what it sends in a step. Put them into a list, leave out "
        "what does not fit, and take the min by a key of three.",
        "Held: 2 bytes a parameter of weights, 2 of gradients, 12 of states. Stage 1 divides the states by p, stage 2 "
        "the gradients, too, stage 3 all. Activations come on top, whole.",
        "Sent: a reduce-scatter or an all-gather is (p-1)/p of the 16-bit weights. Stages 0 and 1 need two a step, "
        "whatever m is. Which ones does each microbatch need in stages 2 and 3?",
        "Stage 2: m + 1, stage 3: 3m. min(fitting, key=lambda plan: (plan['sent'], plan['held'], plan['stage']), "
        "default=None).",
    ],
    why="With one microbatch a step, stage 2 costs nothing above stage 1, and stage 3 half as much again: take it when "
    "you must. With many, the order is another: stage 1 sends once what stages 2 and 3 send each time, which is why "
    "pipelines go with stage 1.",
)
def cheapest_stage(parameters, ranks, device_gb, activations_gb, microbatches, gigabits):
    """Plan training in mixed precision with Adam: the ZeRO stage that fits, sends least, and then holds least.

    Return {"stage": 0 to 3, "held": ..., "sent": ..., "seconds": ...}, or None if no stage fits; of stages that are
    alike, the lowest. Stage 0 is DDP. ``held``: bytes of model states and activations on a device, at the end of
    backward; it must be at most ``device_gb``, in GB of 10^9 bytes. Activations are ``activations_gb`` on each device.
    ``sent``: bytes that a rank sends in a step. ``seconds``: what that takes on a link of ``gigabits`` Gbit/s.

    A step has so many ``microbatches``. Stages 0 and 1 sum up their gradients and reduce once; stage 2 reduces and
    frees those of each microbatch; stage 3 gathers weights twice in each, too. Weights and gradients have 16 bits.
    """
    p, m = ranks, microbatches
    plans = []
    for stage in range(4):
        # ? What does a rank hold, what does it send?
        weights = 2 / (p if stage >= 3 else 1)
        gradients = 2 / (p if stage >= 2 else 1)
        states = 12 / (p if stage >= 1 else 1)
        held = parameters * (weights + gradients + states) + activations_gb * 1e9
        collectives = (2, 2, m + 1, 3 * m)[stage]
        sent = collectives * (p - 1) / p * 2 * parameters
        plans.append({"stage": stage, "held": held, "sent": sent, "seconds": 8 * sent / (gigabits * 1e9)})
    # ? Of those that fit, which one?
    fitting = [plan for plan in plans if plan["held"] <= device_gb * 1e9]
    return min(fitting, key=lambda plan: (plan["sent"], plan["held"], plan["stage"]), default=None)
