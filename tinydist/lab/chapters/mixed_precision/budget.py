"""What training holds, predicted: bytes by purpose, for a recipe and a number of parameters."""

import math
from functools import cache, partial

from ...alone import Calls, input_of
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched
from ...values import kind
from ...verdict import Property
from .own_work import own_work
from .recipes import BLOCK, MOMENTS, PURPOSES, RECIPES, measured

SMALL = [(BLOCK * 4, BLOCK * 12), (BLOCK * 30,)]  # sizes of a model's tensors
BILLIONS = (5_000_000_000 // BLOCK * BLOCK, 2_500_000_000 // BLOCK * BLOCK)
LARGE = ("fp32, Adam", "mixed precision, Adam", "mixed precision, 8-bit Adam")

measure = cache(measured)


def cases():
    for recipe in RECIPES:
        for sizes in SMALL + [BILLIONS] * (recipe.name in LARGE):
            n = sum(sizes)
            yield input_of(partial(lambda *each: each, recipe, n), f"{recipe.name}, n = {n:,}", (recipe, sizes))


def properties(answer):
    watched = Watched(answer)
    calls = Calls(watched, cases())
    yield Property("own work", "predicted, not measured by the lab", calls.together(own_work(watched)))
    yield Property("runs", "bytes by purpose come back", lambda: came_back(calls))
    yield Property("parameters", "what the model computes with", calls.each(partial(right, "parameters"), small))
    yield Property("gradients", "in each format in which they are held", calls.each(partial(right, "gradients"), small))
    yield Property("states", "copies, moments, scales", calls.each(partial(right, "optimizer states"), small))
    yield Property("7.5 billion", "parameters, as the ledger has it", calls.each(all_right, large))


def large(case):
    return case.expected[1] == BILLIONS


def small(case):
    return not large(case)


def came_back(calls):
    calls.end()
    calls.each(form)()


def form(trial):
    got = trial.returned[0]
    if not isinstance(got, dict):
        raise Wrong(f"it returned {kind(got)}, where a dict is right: purpose -> bytes")
    if set(got) != set(PURPOSES):
        raise Wrong(
            f"it has the purposes {', '.join(map(repr, got)) or 'none'}, where {', '.join(map(repr, PURPOSES))} are "
            "right"
        )
    for purpose, nbytes in got.items():
        if not isinstance(nbytes, int | float):
            raise Wrong(f"for {purpose} it has {kind(nbytes)}, where a number of bytes is right")


def right(purpose, trial):
    recipe, sizes = trial.case.expected
    n, got, held = sum(sizes), trial.returned[0][purpose], measure(recipe, sizes)[purpose]
    if not math.isclose(got, held, rel_tol=1e-9):
        raise Wrong(f"your {purpose} have {got / n:.5g} bytes a parameter. {reason(purpose, recipe, got, held, n)}")


def all_right(trial):
    for purpose in PURPOSES:
        right(purpose, trial)


def reason(purpose, recipe, got, held, n):
    if math.isclose(got * n, held, rel_tol=1e-9):
        return "These are the bytes of one parameter: there are n of them"
    if held and math.isclose(got, 8 * held, rel_tol=1e-9):
        return "8 times too many: these are bits, and a byte has 8"
    difference = (held - got) / n
    return f"Too {'few' if difference > 0 else 'many'}: {TERMS[purpose](recipe, difference)}"


# Which term is it? ``difference``: the bytes a parameter that are missing.


def parameters(recipe, difference):
    if near(difference, -4) and recipe.master:
        return f"fp32 copies are counted here, and they are the optimizer's. The model computes with {recipe.weights}"
    return f"the model computes with {recipe.weights}; fp32 takes 4 bytes, a 16-bit format 2"


def gradients(recipe, difference):
    formats = " and ".join(recipe.gradients)
    if len(recipe.gradients) > 1:
        return f"gradients are held in each of {formats}, at the same time"
    return f"gradients are held in {formats}, whatever the format of the weights"


def states(recipe, difference):
    count = MOMENTS[recipe.optimizer]
    remembers = f"{recipe.optimizer} remembers {count} number{'s' * (count != 1)} a parameter, in {recipe.moments}"
    if recipe.master and near(difference, 4):
        return "the fp32 copies of the weights. recipe.master says whether the optimizer keeps them"
    if recipe.moments == "8 bit" and near(difference, 4 * count / BLOCK):
        return f"numbers of 8 bits have a scale, 4 bytes for each {BLOCK} of them"
    if recipe.moments == "8 bit" and near(difference, 4 / BLOCK):
        return f"each of the {count} moments has scales of its own"
    if recipe.moments == "8 bit" and near(difference, 4 * count / BLOCK - 4 * count):
        return f"each number has a scale of its own here, and there is one scale for {BLOCK} of them"
    copies = "the optimizer keeps fp32 copies of the weights" if recipe.master else "there are no copies of the weights"
    return f"{remembers}, and {copies}"


def near(a, b):
    return math.isclose(a, b, rel_tol=1e-6)


TERMS = {"parameters": parameters, "gradients": gradients, "optimizer states": states}


@exercise(
    chapter="04_mixed_precision",
    title="Where the memory goes",
    minutes=20,
    difficulty=2,
    targets={
        "values": "bytes of parameters, gradients and optimizer states, as the ledger counts them, for ten recipes: "
        "fp32, pure bf16, mixed precision, gradients added up in fp32; SGD, momentum, Adam, 8-bit Adam",
        "fp32, Adam": "16 bytes a parameter",
        "mixed precision, Adam": "16 bytes a parameter, too: 120 GB for 7.5 billion",
    },
    hints=[
        "Parameters and gradients: how many bytes does each format have, and how often are they held?",
        "Optimizer states: fp32 copies of the weights, if recipe.master; then the moments. SGD remembers nothing, "
        "momentum one number a parameter, Adam two.",
        "Moments in 8 bits are a byte each, and each of the moments has an fp32 scale for every 256 numbers: 4/256 "
        "bytes more.",
        "optimizer states = n (4 if recipe.master) + n moments (size of one, and 4/256 more in 8 bits), where "
        "moments is 0, 1 or 2.",
    ],
    why="Mixed precision halves the weights and the gradients and not the sum: 16 bytes a parameter before and "
    "after, three quarters of it the optimizer's. So whoever wants to save memory starts there: 8-bit Adam, or ZeRO, "
    "which shards it.",
    check=properties,
)
def training_bytes(recipe, n):
    """Predict the bytes that training holds for ``n`` parameters, by purpose.

    Return {"parameters": ..., "gradients": ..., "optimizer states": ...}. n is a multiple of 256; leave Adam's count of
    steps out.

    A recipe has attributes: write ``recipe.weights``, not recipe["weights"]. That is the format in which the model
    computes: "fp32", "bf16" or "fp16". ``recipe.gradients`` are the formats in which gradients are held at the same
    time, for example ("fp16", "fp32"); ``recipe.master`` says whether the optimizer keeps fp32 copies of the weights;
    ``recipe.optimizer`` is "SGD", "momentum" or "Adam"; ``recipe.moments`` is the format of what it remembers: "fp32",
    "bf16" or "8 bit", where every 256 numbers of a moment share an fp32 scale.
    """
    size = {"fp32": 4, "bf16": 2, "fp16": 2, "8 bit": 1}  # bytes of a number
    # parameters and gradients: what is held, in which format?
    # optimizer states: copies, and what is remembered of each parameter, with its scales.
    raise NotImplementedError
