"""Which stage to take: the one that sends least, of those that fit."""

from math import isclose, isfinite

from ...alone import Calls, input_of
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched, calls_none_of
from ...verdict import Property
from .measured import SMALL, STAGES, measured_sent, measured_states, sent
from .own_work import FINISHED
from .plan_mistakes import GB, held_by, near, why_held, why_sent

ANSWER = ("stage", "held", "sent", "seconds")
MEASURE = FINISHED | {"tinydist.launch": "tinydist.launch", "tinydist.lab.chapters": "the lab"}
GIVEN = ("parameters", "ranks", "device_gb", "activations_gb", "microbatches", "gigabits")
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
MEASURED = [
    (SMALL, 2, bytes_a_parameter * SMALL / GB, 0, m, 1) for bytes_a_parameter, m in ((11, 3), (9.5, 1), (8.5, 2))
]


def setting(*given):
    about = ", ".join(f"{name}={value:.10g}" for name, value in zip(GIVEN, given))
    return input_of(lambda: given, about, given)


def properties(answer):
    watched = Watched(answer)
    plans, small = (Calls(watched, [setting(*given) for given in each]) for each in (PLANS, MEASURED))
    yield Property(
        "own work", "it predicts, and runs no stage", plans.together(calls_none_of(watched, MEASURE, "predict it"))
    )
    yield Property("runs", f"it ends for {len(PLANS)} settings", plans.end)
    yield Property("form", "stage, held, sent and seconds; or None", plans.each(form))
    yield Property("held", "model states and activations, as the named stage holds them", plans.each(held))
    yield Property("sent", "by a rank in a step, as the named stage sends", plans.each(sent_by_it))
    yield Property("seconds", "of a link that sends so much and nothing else", plans.each(seconds))
    yield Property("choice", "it fits, sends least, and then holds least", plans.each(choice))
    yield Property("measured", "a small model, by the ledger and the meter of bytes", small.each(as_measured))


def form(trial):
    got = trial.returned[0]
    if got is None:
        return
    if not isinstance(got, dict) or set(got) != set(ANSWER):
        raise Wrong(
            f'it returned {got!r}, where {{"stage": ..., "held": ..., "sent": ..., "seconds": ...}} or None is right'
        )
    if got["stage"] not in STAGES:
        raise Wrong(f"it names stage {got['stage']!r}, and there are {', '.join(map(str, STAGES))}")
    for name in ANSWER[1:]:
        if not isinstance(got[name], int | float) or not isfinite(got[name]):
            raise Wrong(f"{name} is {got[name]!r}, where a number is right")


def held(trial):
    got, given = trial.returned[0], trial.case.expected
    if got and not near(got["held"], held_by(got["stage"], given)):
        of_states = (got["held"] - given[3] * GB) / given[0]
        raise Wrong(
            f"your stage {got['stage']} holds {got['held']:,.10g} bytes, without activations {of_states:.5g} a "
            f"parameter. {why_held(got['held'], got['stage'], given)}"
        )


def sent_by_it(trial):
    got, given = trial.returned[0], trial.case.expected
    parameters, ranks, _, _, microbatches, _ = given
    if got and not near(got["sent"], sent(parameters, ranks, got["stage"], microbatches)):
        raise Wrong(
            f"your stage {got['stage']} sends {got['sent']:,.10g} bytes a rank in a step. "
            f"{why_sent(got['sent'], got['stage'], parameters, ranks, microbatches)}"
        )


def seconds(trial):
    got, gigabits = trial.returned[0], trial.case.expected[-1]
    if got:
        right = got["sent"] * 8 / (gigabits * GB)
        if not near(got["seconds"], right):
            known = {8: "a byte has 8 bits", 1 / 8: "a byte has 8 bits, once", GB: "a Gbit has 10^9 bits"}
            binary = 2**30 / GB
            known |= {binary: "a Gbit has 10^9 bits, not 2^30", 8 * binary: "a byte has 8 bits, and a Gbit 10^9"}
            why = next(
                (words for factor, words in known.items() if right and near(got["seconds"] * factor, right)), None
            )
            what = f"your {got['sent']:,.10g} bytes take {got['seconds']:.6g} seconds at {gigabits} Gbit/s"
            raise Wrong(f"{what}: {why or 'seconds = bits sent / bits a second'}")


def best(given):
    """The stage; None if none fits."""
    parameters, ranks, device_gb, _, microbatches, _ = given
    fitting = [stage for stage in STAGES if held_by(stage, given) <= device_gb * GB]
    return min(fitting, key=lambda s: (sent(parameters, ranks, s, microbatches), held_by(s, given), s), default=None)


def choice(trial):
    got, given = trial.returned[0], trial.case.expected
    right, named = best(given), got and got["stage"]
    if named == right:
        return
    parameters, ranks, device_gb, _, microbatches, _ = given
    if named is None:
        raise Wrong("it finds no stage that fits, and there is one. Which stage holds least?")
    if held_by(named, given) > device_gb * GB:
        almost = " (A GB has 10^9 bytes, and a GiB 2^30.)" if held_by(named, given) <= device_gb * 2**30 else ""
        raise Wrong(
            f"stage {named} holds {held_by(named, given) / GB:,.4g} GB with activations, and a device has "
            f"{device_gb:.4g}: it "
            f"does not fit.{almost}" + (" If no stage fits, None is right" if right is None else "")
        )
    if ranks == 1:
        raise Wrong(f"with one rank all stages send and hold the same, and then the lowest is right, not stage {named}")
    fewer = sent(parameters, ranks, named, microbatches) > sent(parameters, ranks, right, microbatches)
    raise Wrong(
        f"stage {named} fits, but another one that fits "
        + (
            f"sends less, with {microbatches} microbatch{'es' * (microbatches > 1)} a step"
            if fewer
            else "sends as much and holds less"
        )
        + (". It holds all that a device has, and not more: it fits" if held_by(right, given) == device_gb * GB else "")
    )


def as_measured(trial):
    came_to_an_end(trial)
    form(trial)
    choice(trial)
    got, (parameters, ranks, _, _, microbatches, _) = trial.returned[0], trial.case.expected
    for name, value in (
        ("held", measured_states(ranks, got["stage"])),
        ("sent", measured_sent(ranks, got["stage"], microbatches)),
    ):
        if not isclose(got[name], value, rel_tol=1e-6):
            raise Wrong(
                f"your {name}, {got[name]:,.10g} bytes, is not what was measured of stage {got['stage']}: {value:,.0f}"
            )


def came_to_an_end(trial):
    if trial.error is not None:
        raise trial.error


@exercise(
    chapter="06_zero",
    title="Plan: the cheapest stage that fits",
    minutes=25,
    difficulty=3,
    targets={
        "held, sent, seconds": f"those of the stage that you name, to the byte, for {len(PLANS)} settings; 13 billion "
        "parameters on 8 x 40 GB among them",
        "choice": "of the stages that fit, the one that sends least; then the one that holds least; then the lowest",
        "measured": f"{len(MEASURED)} settings of a small model, as the ledger and the meter of bytes have them",
    },
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
    check=properties,
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
        # What does a rank hold, what does it send?
        raise NotImplementedError
    # Of those that fit, which one?
    raise NotImplementedError
