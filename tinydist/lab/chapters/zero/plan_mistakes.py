"""What wrong numbers of a plan come from: the bytes that a stage holds, and those that it sends."""

from itertools import product
from math import isclose

from .measured import PURPOSES, SHARDED_FROM, model_states, sent

GB = 1e9
ALIKE = ("parameters", "gradients")  # each has 2 bytes: their sum does not tell which of them it is


def held_by(stage, given):
    parameters, ranks, _, activations_gb, *_ = given
    return model_states(parameters, ranks, stage) + activations_gb * GB


def why_held(got, stage, given):
    parameters, ranks, _, activations_gb, *_ = given
    states, activations = model_states(parameters, ranks, stage), activations_gb * GB
    known = {
        "Activations are missing: they are on the device beside the model states": states,
        "Activations are not sharded: each rank has those of its own batch": states + activations / ranks,
        "These are GB: held is bytes, 10^9 for a GB": (states + activations) / GB,
        "Are these GiB? A GB has 10^9 bytes, a GiB 2^30": states + activations_gb * 2**30,
        "The gradients are missing": held_if(given, stage, {"gradients": 0}),
        "Gradients count 4 bytes here, as of fp32. They have 16 bits, and the fp32 copies are of weights": (
            held_if(given, stage, {"gradients": 4})
        ),
        "The optimizer's states count 8 bytes here: two moments. In mixed precision it has fp32 copies of the "
        "weights, too": (held_if(given, stage, {"optimizer states": 8})),
        "Weights count 4 bytes here. They have 16 bits; their fp32 copies are the optimizer's": (
            held_if(given, stage, {"parameters": 4})
        ),
    }
    found = next((words for words, value in known.items() if near(got, value)), None)
    return (
        found
        or sharded_wrong(got, stage, given)
        or "Which of weights (2), gradients (2) and states (12) are divided by p?"
    )


def held_if(given, stage, other):
    """If a number of other bytes counts for a purpose."""
    parameters, ranks, _, activations_gb, *_ = given
    shards = {purpose: ranks if stage >= SHARDED_FROM[purpose] else 1 for purpose in PURPOSES}
    return sum(n * parameters / shards[each] for each, n in (PURPOSES | other).items()) + activations_gb * GB


def sharded_wrong(got, stage, given):
    """By which purposes are divided, and which are not."""
    parameters, ranks, _, activations_gb, *_ = given
    for flags in product((True, False), repeat=len(PURPOSES)):
        sharded = dict(zip(PURPOSES, flags))
        total = sum(n * parameters / (ranks if sharded[each] else 1) for each, n in PURPOSES.items())
        if near(got, total + activations_gb * GB):
            right = {each: stage >= SHARDED_FROM[each] for each in PURPOSES}
            now = "sharded" if any(sharded[each] > right[each] for each in PURPOSES) else "whole"
            wrong = [each for each in PURPOSES if sharded[each] != right[each] and sharded[each] == (now == "sharded")]
            if stage != 2 and len({*wrong} & {*ALIKE}) == 1:
                wrong = [" or ".join(ALIKE), *(each for each in wrong if each not in ALIKE)]
            return f"Its {' and '.join(wrong)} are {now} here, and in stage {stage} they are not"
    return None


def why_sent(got, stage, parameters, p, m):
    if p == 1:
        return "One rank sends nothing"
    right = sent(parameters, p, stage, m)
    once = sent(parameters, p, stage, 1)
    known = {
        "A collective does not send the part that is a rank's own: (p-1)/p": right * p / (p - 1),
        "Weights and gradients have 2 bytes a number, and this counts 4": 2 * right,
        "These are numbers, and each has 2 bytes": right / 2,
        "This is what all ranks send together": p * right,
        "These are GB: sent is bytes": right / GB,
    }
    if m > 1:
        known[
            f"This is a step of one microbatch. Here are {m}, which reduce their gradients each, and in stage 3 "
            "gather, too"
        ] = once
        known["Not all is sent for each microbatch: what is there only once a step?"] = m * once
    found = next((words for words, value in known.items() if near(got, value)), None)
    return (
        found
        or f"Count its collectives in a step of {'a microbatch' if m == 1 else f'{m} microbatches'}: {WHAT[stage]}"
    )


WHAT = {
    0: "gradients are summed up over microbatches; then an all-reduce, which is a reduce-scatter and an all-gather",
    1: "gradients are summed up over microbatches; then one collective reduces them, and one publishes the weights",
    2: "each microbatch reduces its gradients; the weights are published once",
    3: "each microbatch gathers weights before forward and before backward, and reduces its gradients",
}


def near(a, b):
    return isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
