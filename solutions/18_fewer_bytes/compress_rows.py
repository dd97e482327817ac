"""A matrix in one bit per number and one scale per row, with error feedback."""

import torch
import torch.nn.functional as F

from tinydist.lab.author import Malformed, Own, Varied, alone, exercise, mistake

from .chapter import INSTEAD, SOLVED, numbers

KEPT = "error.copy_(corrected - signs * scales.unsqueeze(1))"
POSITIVE = "positive = corrected >= 0"


def case(rows, columns, about, steps=3, zero=False):
    def arguments():
        x = [
            numbers(rows, columns, seed=10 * rows + step) * torch.arange(1.0, rows + 1).unsqueeze(1)
            for step in range(steps)
        ]
        for each in x if zero else ():
            each[0] = 0
        return (x,)

    return alone(arguments, f"[{rows}, {columns}], {about}")


def test_cases():
    yield case(1, 8, "one step", steps=1)
    yield case(2, 16, "two rows of different size")
    yield case(3, 8, "a row of zeros", zero=True)
    yield case(2, 11, "columns that are no multiple of 8")
    yield case(4, 3, "less than a byte")


def send(answer, tensors):
    """Several steps with the same error; what it is after each."""
    error, found = torch.zeros_like(tensors[0]), {}
    for step, x in enumerate(tensors):
        sent = answer(x.clone(), error)
        if not isinstance(sent, tuple | list) or len(sent) != 2:
            raise Malformed(f"it returned {type(sent).__name__}, where (bits, scales) is right")
        found |= {f"the scales of step {step}": sent[1], f"the bits of step {step}": sent[0]}
        found[f"the error after step {step}"] = error.clone()
    return found


@exercise(
    title="One bit per number, one scale per row",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    program=send,
    targets=[
        Own("your own packing", INSTEAD, SOLVED),
        Varied(
            "bits, scales and the error that is kept, in several steps",
            scratch=True,
            variants=[
                (
                    "Where a row ends within a byte its bits are 1: what fills the byte is no number, and its bits "
                    "are 0. Fill up the signs, as 0 and 1, and not the numbers",
                    "-x.shape[1] % 8))",
                    "-x.shape[1] % 8), value=1)",
                ),
                (
                    "What fills the last byte stands before the row's numbers, and should be behind them",
                    "(0, -x.shape[1] % 8)",
                    "(-x.shape[1] % 8, 0)",
                ),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "The error of the last step must be added before anything is compressed",
            "corrected = x + error",
            "corrected = x",
        ),
        mistake(
            "The error is what this step could not say, of x and the error before: it takes the place of the old one, "
            "and is not added to it",
            "error.copy_(corrected - ",
            "error.add_(corrected - ",
        ),
        mistake("Each row has a scale of its own", "corrected.norm(dim=1)", "corrected.norm().expand(len(x))"),
        mistake(
            "The scale is the norm divided by the square root of the numbers of a row, so that signs are as long as "
            "the row was",
            "/ x.shape[1] ** 0.5",
            "/ x.shape[1]",
        ),
        mistake("Zero counts as positive", POSITIVE, "positive = corrected > 0"),
        mistake("The first of eight numbers is the highest bit of a byte", "7 - torch.arange(8)", "torch.arange(8)"),
        mistake(
            "Without the scale the signs are too long or too short in the error", "signs * scales.unsqueeze(1)", "signs"
        ),
        mistake(
            "The scale is the norm divided by the square root of C, and not the mean of the magnitudes",
            "corrected.norm(dim=1) / x.shape[1] ** 0.5",
            "corrected.abs().mean(1)",
        ),
    ],
    hints=[
        "What is to be said is x and what was left unsaid: x + error. Compress that.",
        "corrected.norm(dim=1) / sqrt(columns) is the scale of each row. A receiver makes of it the scale times "
        "1 or -1; the difference to `corrected` is the new error.",
        "Pad the signs (as 0 and 1) with zeros to a multiple of 8 columns, view them as [rows, bytes, 8], multiply by "
        "128, 64, ..., 1, and add up.",
    ],
    why="With a scale per tensor, as in 1-bit Adam, a row of small numbers is drowned by the noise of the large ones: "
    "embeddings of rare words, say. A scale per row costs 4 bytes a row. Error feedback makes either right in the end.",
)
def compress_rows(x, error):
    """Return (bits, scales) of ``x`` [R, C] with error feedback, and write into ``error`` [R, C] what they do not say.

    All floats are float32. A row of x + error is sent as signs and one scale, its norm divided by the square root of C.
    ``bits`` is uint8 [R, ceil(C/8)], the first of eight numbers in the highest bit; a bit is 1 for numbers >= 0, and 0
    where a row ends within a byte. ``scales`` is float32 [R].
    """
    # ? What has to be said? In which sizes?
    corrected = x + error
    scales = corrected.norm(dim=1) / x.shape[1] ** 0.5
    # ? What do signs and scale not say?
    positive = corrected >= 0
    signs = torch.where(positive, 1.0, -1.0)
    error.copy_(corrected - signs * scales.unsqueeze(1))
    # ? Eight signs to a byte.
    padded = F.pad(positive.int(), (0, -x.shape[1] % 8)).unflatten(1, (-1, 8))
    return (padded << (7 - torch.arange(8))).sum(2).to(torch.uint8), scales
