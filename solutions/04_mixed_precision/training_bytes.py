"""What training holds, predicted: bytes by purpose, for a recipe and a number of parameters."""

import math
from typing import NamedTuple

from tinydist.lab.author import Own, Target, Wrong, alone, exercise, kind, mistake

from .chapter import HERE, SOLVED

BLOCK = 256  # numbers that share a scale in 8 bits
PURPOSES = ("parameters", "gradients", "optimizer states")


class Recipe(NamedTuple):
    name: str
    weights: str  # the format in which the model computes
    gradients: tuple  # the formats in which gradients are held, one after the other, at the end of a step
    master: bool  # the optimizer keeps fp32 copies of the weights
    optimizer: str  # "SGD", "momentum" or "Adam"
    moments: str = "fp32"  # what the optimizer remembers, in which format; "8 bit" with an fp32 scale for each BLOCK


RECIPES = [
    Recipe("fp32, SGD", "fp32", ("fp32",), False, "SGD"),
    Recipe("fp32, SGD with momentum", "fp32", ("fp32",), False, "momentum"),
    Recipe("fp32, Adam", "fp32", ("fp32",), False, "Adam"),
    Recipe("pure bf16, Adam", "bf16", ("bf16",), False, "Adam", "bf16"),
    Recipe("mixed precision, SGD with momentum", "fp16", ("fp16",), True, "momentum"),
    Recipe("mixed precision, Adam", "fp16", ("fp16",), True, "Adam"),
    Recipe("bf16 with gradients added up in fp32, Adam", "bf16", ("fp32",), True, "Adam"),
    Recipe("fp16 with gradients in both, Adam", "fp16", ("fp16", "fp32"), True, "Adam"),
    Recipe("fp32, 8-bit Adam", "fp32", ("fp32",), False, "Adam", "8 bit"),
    Recipe("mixed precision, 8-bit Adam", "bf16", ("bf16",), True, "Adam", "8 bit"),
    Recipe("mixed precision, 8-bit momentum", "fp16", ("fp16", "fp32"), True, "momentum", "8 bit"),
    Recipe("mixed precision, SGD", "bf16", ("bf16", "fp32"), True, "SGD", "bf16"),
]


def test_cases():
    for n in (BLOCK, 3 * BLOCK, 46 * BLOCK, 4097 * BLOCK, 7_500_000_000 // BLOCK * BLOCK):
        yield alone(lambda n=n: (n,), f"n = {n:,}")


def predicted(answer, n):
    """For each recipe: purpose -> bytes per parameter."""
    return [checked(answer(recipe, n), n) for recipe in RECIPES]


def checked(got, n):
    if not isinstance(got, dict):
        raise Wrong(f"it returned {kind(got)}, where a dict is right: purpose -> bytes")
    if set(got) != set(PURPOSES):
        have, want = (", ".join(map(repr, names)) or "none" for names in (got, PURPOSES))
        raise Wrong(f"it has the purposes {have}, where {want} are right")
    for purpose, nbytes in got.items():
        if type(nbytes) not in (int, float):
            raise Wrong(f"for {purpose} it has {kind(nbytes)}, where a number of bytes is right")
    return {purpose: nbytes / n for purpose, nbytes in got.items()}


class Held(Target):
    """The bytes of one purpose, which follow from ``attributes`` of the recipe. The right ones are not told."""

    decides = True

    def __init__(self, name, attributes, holds, purpose=None):
        super().__init__(holds)
        self.name, self.attributes, self.purpose = name, attributes.split(), purpose or name

    def seen(self, trial):
        return None if trial.error is not None else [each[self.purpose] for each in trial.returned[0]]

    def alike(self, mine, other, right):
        return 2 * all(map(same, mine, other))

    def judge(self, exercise, trial, right):
        for recipe, mine, its in zip(RECIPES, self.seen(trial), self.seen(right)):
            if not same(mine, its):
                attributes = ", ".join(f"recipe.{each} is {getattr(recipe, each)!r}" for each in self.attributes)
                raise Wrong(
                    f"your {self.purpose} of {recipe.name!r} have {mine:.5g} bytes per parameter, which are too "
                    f"{'few' if mine < its else 'many'}: {attributes}{self.off_by(mine - its, recipe)}"
                )

    def off_by(self, off, recipe):
        """Of a difference in bytes per parameter, the thing that has so many."""
        number = {"fp32": 4, "bf16": 2, "8 bit": 1 + 4 / BLOCK}[recipe.moments]
        if self.purpose == "parameters" and recipe.master and same(off, 4):
            return ". The fp32 copies are the optimizer's: they are among its states"
        if recipe.master and self.purpose != "optimizer states" and same(off, 4 - number_of(recipe.weights)):
            return f". A number of {recipe.weights} has 2. 4 are those of the fp32 copies, which are the optimizer's"
        if self.purpose == "gradients" and recipe.master and same(off, 4):
            return ". The fp32 copies of the weights are no gradients: they are among the optimizer's states"
        if self.purpose == "optimizer states" and recipe.moments == "8 bit" and abs(off) < 0.5:
            right = (2 if recipe.optimizer == "Adam" else 1) * 4 / BLOCK
            return f". The scales have {right + off:.4g} bytes per parameter here, and {right:.4g} are right"
        if self.purpose == "optimizer states" and recipe.moments == "8 bit" and same(off, -4 / BLOCK):
            return f". Each moment has scales of its own: Adam's two have 2 x 4 bytes for {BLOCK} parameters"
        if self.purpose == "optimizer states" and (same(off, number) or same(off, -number)):
            return ". It is off by one number: SGD remembers none of each parameter, momentum one, Adam two"
        return ""


def number_of(name):
    return {"fp32": 4, "bf16": 2, "fp16": 2}[name]


def same(a, b):
    return math.isclose(a, b, rel_tol=1e-9)


@exercise(
    title="Where the memory goes",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    program=predicted,
    targets=[
        Own("predicted by yourself", HERE, SOLVED),
        Held(
            "parameters",
            "weights",
            "what the model computes with, for twelve recipes: fp32, pure bf16, mixed precision",
        ),
        Held("gradients", "gradients", "in each format in which they are held: also where they are added up in fp32"),
        Held(
            "states",
            "optimizer moments master",
            "copies, moments, scales: SGD, momentum, Adam, and in 8 bits; as the ledger counts them. Fp32 with Adam "
            "holds 16 bytes per parameter in all, and mixed precision, too: 120 GB for 7.5 billion",
            "optimizer states",
        ),
    ],
    mistakes=[
        mistake(
            "The model computes with recipe.weights: fp32 takes 4 bytes, a 16-bit format 2",
            '"parameters": n * size[recipe.weights]',
            '"parameters": 2 * n',
        ),
        mistake(
            "Gradients are held in each of the formats of recipe.gradients, at the same time",
            "sum(size[each] for each in recipe.gradients)",
            "size[recipe.gradients[-1]]",
        ),
        mistake(
            "Gradients are held in the formats of recipe.gradients, whatever the format of the weights",
            "sum(size[each] for each in recipe.gradients)",
            "size[recipe.weights]",
        ),
        mistake(
            "The moments are held in recipe.moments, which need not be fp32",
            "moments * size[recipe.moments]",
            'moments * size["fp32"]',
            'if recipe.moments == "8 bit":',
            "if False:",
        ),
        mistake(
            "The fp32 copies of the weights are missing. recipe.master says whether the optimizer keeps them",
            '    if recipe.master:\n        states += n * size["fp32"]\n',
            "",
        ),
        mistake(
            "SGD remembers nothing, momentum one number per parameter, and Adam two",
            '{"SGD": 0, "momentum": 1, "Adam": 2}[recipe.optimizer]',
            "2",
        ),
        mistake(
            f"Numbers of 8 bits have a scale, 4 bytes for each {BLOCK} of them",
            'if recipe.moments == "8 bit":',
            "if False:",
        ),
        mistake(
            f"Each number has a scale of its own here, and there is one scale for {BLOCK} of them",
            "n // 256 * moments",
            "n * moments",
        ),
    ],
    hints=[
        "Parameters and gradients: how many bytes does each format have, and how often are they held?",
        "Optimizer states: fp32 copies of the weights, if recipe.master; then the moments. SGD remembers nothing, "
        "momentum one number per parameter, Adam two.",
        "Moments in 8 bits are a byte each, and each of the moments has an fp32 scale for every 256 numbers: 4/256 "
        "bytes more.",
        "optimizer states = n (4 if recipe.master) + n moments (size of one, and 4/256 more in 8 bits), where "
        "moments is 0, 1 or 2.",
    ],
    why="Mixed precision halves the weights and the gradients and not the sum: 16 bytes per parameter before and "
    "after, three quarters of it the optimizer's. So whoever wants to save memory starts there: 8-bit Adam, or ZeRO, "
    "which shards it.",
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
    # ? parameters and gradients: what is held, in which format?
    # ? optimizer states: copies, and what is remembered of each parameter, with its scales.
    moments = {"SGD": 0, "momentum": 1, "Adam": 2}[recipe.optimizer]
    states = n * moments * size[recipe.moments]
    if recipe.moments == "8 bit":
        states += n // 256 * moments * size["fp32"]
    if recipe.master:
        states += n * size["fp32"]
    return {
        "parameters": n * size[recipe.weights],
        "gradients": n * sum(size[each] for each in recipe.gradients),
        "optimizer states": states,
    }
