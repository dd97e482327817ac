"""Rotary embedding in a sequence longer than in training, by YaRN: slow pairs are slowed down, fast ones are not."""

import math

import torch

from tinydist.lab.author import Own, Part, alone, exercise, mistake

from .chapter import INSTEAD, SOLVED


def case(about, shape, positions, base, trained, factor, dtype=torch.float32):
    def arguments():
        generator = torch.Generator().manual_seed(len(about))
        x = torch.randn(*shape[:2], len(positions), shape[2], generator=generator, dtype=dtype)
        return x, torch.tensor(positions), base, trained, factor

    return alone(arguments, f"{about}, d = {shape[2]}, {trained:,} tokens in training, {factor:g} times", rtol=1e-3)


def test_cases():
    yield case("no longer than in training", (1, 1, 4), range(6), 10_000.0, 512, 1.0)
    yield case("fast, slow, and in between", (1, 1, 16), range(1, 9), 10_000.0, 512, 4.0)
    yield case("one pair, a fast one", (1, 2, 2), range(5, 9), 10_000.0, 512, 4.0)
    yield case("positions beyond training", (2, 1, 16), range(900, 905), 10_000.0, 512, 4.0)
    yield case("a larger base, positions in no order", (1, 2, 32), [300, 7, 0, 64], 500_000.0, 8192, 8.0)
    yield case("all pairs slow", (1, 1, 6), range(4), 100.0, 6, 40.0)
    yield case("float64", (2, 3, 8), range(3), 10_000.0, 300, 2.5, torch.float64)


KEPT = "kept = ((rotations - 1) / 31).clamp(0, 1)"
HALVES = "a, b = x[..., :half], x[..., half:]"
MIXED = "(kept + (1 - kept) / factor) * angles"
ROTATED = "torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)"


@exercise(
    title="Rotate in a longer context",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("built from cosines and sines", INSTEAD, SOLVED),
        Part(
            "rotated",
            "rotated",
            "by the angles of YaRN: RoPE's where the context is no longer than in training; pairs that are fast, slow, "
            "and in between; positions beyond training",
            variants=[
                (
                    "Between 1 and 32 rotations periods are mixed, factor times as long and as in training. Mix the "
                    "angles: a share of the angle stays, and the rest becomes factor times smaller",
                    MIXED,
                    "angles / (kept + (1 - kept) * factor)",
                ),
                (
                    "Between 1 and 32 rotations logarithms are mixed. Mix the angles: a share of the angle stays, and "
                    "the rest becomes factor times smaller",
                    MIXED,
                    "angles / factor ** (1 - kept)",
                ),
            ],
        ),
        Part("scale", "scale", "what scores are multiplied by: 1.87 for 40 times the context"),
    ],
    mistakes=[
        mistake(
            "All pairs are slowed down: this is position interpolation, and the fast pairs hardly tell neighbors apart",
            KEPT,
            "kept = torch.zeros_like(rotations)",
        ),
        mistake(
            "No pair is slowed down, as if the context were as long as in training",
            KEPT,
            "kept = torch.ones_like(rotations)",
        ),
        mistake(
            "Fast pairs are slowed down, and slow ones stay. A fast pair has seen all angles, a slow one has not",
            KEPT,
            "kept = 1 - ((rotations - 1) / 31).clamp(0, 1)",
        ),
        mistake(
            "Pairs with 1 to 32 rotations are not mixed: of what a pair keeps, (rotations - 1) / 31 is its own angle",
            KEPT,
            "kept = (rotations > 32).double()",
        ),
        mistake(
            "Rotations are counted in the long context. What a pair has seen it has seen in training",
            "trained * angles",
            "trained * factor * angles",
        ),
        mistake("A full rotation is 2 pi, and angles are in radians", " / (2 * math.pi)", ""),
        mistake(
            "Neighbors are paired, as in the notebook. Here number i is paired with number i + d/2",
            HALVES,
            "a, b = x[..., 0::2], x[..., 1::2]",
            ROTATED,
            "torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)",
        ),
        mistake("Queries and keys are both scaled in the paper, so a score is, twice: square it", ") ** 2}", ")}"),
    ],
    hints=[
        "Pair i rotates by base^(-2i/d) from one position to the next. How many full rotations are that in `trained` "
        "tokens?",
        "trained * angle / (2 pi). With more than 32 the angle stays, with fewer than 1 it is divided by factor; in "
        "between a share (rotations - 1) / 31 of it stays, and of the rest a factor-th: clamp does all three.",
        "a, b = x[..., :d/2], x[..., d/2:] are the two numbers of all pairs. A point (a, b), rotated by an angle, is "
        "(a cos - b sin, a sin + b cos). Compute angles in float64, and convert cosines and sines.",
    ],
    why="This is the whole difference between a model for 4,096 tokens and one for 163,840, before some more training: "
    "one number for each pair, and one for the scores. The paper mixes by a pair's rotations, as here, and its "
    "published code by the pair's index: a model needs the rule that it was trained with.",
)
def rotate_longer(x, positions, base, trained, factor):
    """Rotate x to its positions by YaRN, in a context that is ``factor`` times as long as in training.

    x is [B, H, T, d], ``positions`` [T]. Number i of x is paired with number i + d/2, as in Hugging Face's Llama. In
    training, with ``trained`` tokens, pair i is rotated by base^(-2i/d) from one position to the next. Now this angle
    becomes ``factor`` times smaller if the pair makes at most 1 full rotation in ``trained`` tokens, and stays if it is
    32 or more. In between a share (rotations - 1) / 31 of the angle stays, and the rest becomes ``factor`` times
    smaller.

    Return {"rotated": ..., "scale": ...}: x, rotated, and what scores are multiplied by, (0.1 ln factor + 1)^2. All is
    float32, in one world float64.
    """
    half = x.shape[-1] // 2
    # ? the angle of each pair from one position to the next, in training; its rotations; its angle now  [d / 2]
    # ? cosines and sines [T, d / 2]; both numbers of each pair, rotated
    angles = base ** (-torch.arange(half, dtype=torch.float64) / half)
    rotations = trained * angles / (2 * math.pi)
    kept = ((rotations - 1) / 31).clamp(0, 1)
    angles = positions[:, None] * (kept + (1 - kept) / factor) * angles
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    rotated = torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
    return {"rotated": rotated, "scale": (0.1 * math.log(factor) + 1) ** 2}
