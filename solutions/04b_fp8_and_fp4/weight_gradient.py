"""The gradient of a weight in NVFP4: a Hadamard transform of both operands, and chance for the gradient alone."""

import torch

from tinydist.lab.author import Own, Values, alone, as_many, exercise, mistake

from .chapter import HERE, SOLVED

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def nvfp4(rows, chance=None):
    """``rows`` in NVFP4, blocks of 16 along each row: to the nearest, or stochastically, with a chance for each."""
    blocks = rows.unflatten(1, (-1, 16))
    amax = blocks.abs().amax(-1, keepdim=True)
    tensor = (rows.abs().max() / 6 / 448).clamp(min=2.0**-126)
    scale = (amax / 6 / tensor).to(torch.float8_e4m3fn).float() * tensor
    magnitude = (blocks / torch.where(scale == 0, torch.inf, scale)).abs().clamp(max=6).contiguous()
    place = (torch.bucketize(magnitude, E2M1, right=True) - 1).clamp(max=6)
    low, high = E2M1[place], E2M1[place + 1]
    part = (magnitude - low) / (high - low)
    if chance is None:
        up = (part > 0.5) | (part == 0.5) & (place % 2 == 1)
    else:
        up = chance.unflatten(1, (-1, 16)) < part
    return (torch.where(up, high, low).copysign(blocks) * scale).flatten(1)


class Quantize:
    """``nvfp4``, which notes what it is given."""

    def __init__(self):
        self.given = []

    def __call__(self, rows, chance=None):
        if rows.ndim != 2 or rows.shape[1] % 16:
            raise ValueError(
                f"quantize: {list(rows.shape)} has no blocks of 16 along its rows. The product sums over tokens, so "
                "blocks lie along the tokens"
            )
        self.given.append((rows.detach().clone(), chance))
        return nvfp4(rows, chance)


def case(about, tokens, outputs, inputs, dy_by=1.0, x_by=1.0):
    """One token of each 16 has a gradient, or an input, that is so much larger."""

    def given():
        generator = torch.Generator().manual_seed(tokens + outputs)
        dy, x = (torch.randn(tokens, size, generator=generator) for size in (outputs, inputs))
        dy[5::16] *= dy_by
        x[3::16] *= x_by
        signs = torch.randint(0, 2, (16,), generator=generator).float() * 2 - 1
        return dy, x, signs, torch.rand(outputs, tokens, generator=generator), Quantize()

    return alone(given, about)


def test_cases():
    yield case("normal numbers", 64, 24, 40)
    yield case("one block of tokens", 16, 8, 4)
    yield case("gradients of which one in 16 is 300 times as large", 64, 8, 24, dy_by=300.0)
    yield case("inputs of which one in 16 is 300 times as large", 64, 8, 24, x_by=300.0)
    yield case("as many tokens as outputs and inputs", 32, 32, 32)


def counts(trial):
    yield len(trial.case.arguments(0)[0]), "tokens: the product sums over them, and takes no mean"
    yield 4, "numbers in the root of 16: each row of the matrix has a length of 1"
    yield 16, "tokens in a block: each row of the matrix has a length of 1"


class Gradient(Values):
    def general(self, trial, right):
        return of_operands(*trial.arguments[0], right.arguments[0][4].given) or super().general(trial, right)


def of_operands(dy, x, signs, chance, quantize, right):
    """What is wrong with what ``quantize`` was given; ``right``: what the solution gave it, of dy, then of x."""
    if not quantize.given:
        return "quantize is never called. Both operands are rounded to 4 bits before they are multiplied"
    if len(quantize.given) == 1:
        return "quantize is called once. Both operands are rounded to 4 bits before they are multiplied"
    for name, operand, (want, drawn) in zip(("dy", "x"), (dy, x), right):
        mine = [pair for pair in quantize.given if pair[0].shape == want.shape]
        near = [pair for pair in mine if torch.allclose(pair[0], want, rtol=1e-4, atol=1e-4)]
        if not mine:
            return f"quantize gets no rows of {name}.T, {list(want.shape)}: the product sums over tokens"
        if near and drawn is None and all(pair[1] is not None for pair in near):
            return f"{name} gets chances. Only the gradient, dy, is rounded stochastically"
        if near and drawn is not None and not any(pair[1] is not None and pair[1].equal(drawn) for pair in near):
            return f"{name} is not rounded with the numbers in `chance` as they are given"
        if near:
            continue
        times = mine[0][0].norm() / want.norm()
        if any(torch.equal(pair[0], operand.T) for pair in mine):
            return (
                f"{name} is quantized as it is. Both operands are transformed first, or nothing cancels in the product"
            )
        if not 0.9 < times < 1.1:
            return f"{name} is {times:.3g} times as long after the transform: each row of the matrix has a length of 1"
        return f"What quantize gets of {name} is not each 16 tokens, times the signs, times the matrix of 16 x 16"
    return ""


LEFT = "quantize(spread(dy.T), chance)"
RIGHT = "quantize(spread(x.T))"
MIX = "(rows.unflatten(1, (-1, 16)) * signs) @ matrix"


@exercise(
    title="The gradient of a weight in 4 bits",
    minutes=30,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("not the library's", HERE, SOLVED),
        Gradient(
            "the gradient from operands of 4 bits, for 16 to 64 tokens, and with outliers in either operand",
            explain=[as_many(counts)],
        ),
    ],
    mistakes=[
        mistake(
            "One operand alone is transformed. What cancels in the product cancels if both are",
            RIGHT,
            "quantize(x.T)",
        ),
        mistake(
            "Nothing is transformed before it is rounded: an outlier still has its block's scale for itself. (A "
            "transform after the rounding cancels in the product)",
            LEFT,
            "quantize(dy.T.contiguous(), chance)",
            RIGHT,
            "quantize(x.T.contiguous())",
        ),
        mistake(
            "The gradient is rounded to the nearest, and errs the same way in every step. It gets the chances",
            LEFT,
            "quantize(spread(dy.T))",
        ),
        mistake(
            "The product is 16 times too large: each row of the matrix has a length of 1, so its numbers are 1/4",
            "matrix / 4",
            "matrix",
        ),
        mistake(
            "The signs are left out, or come after the matrix, where they cancel in the product. Without them, numbers "
            "that are all alike would become one outlier",
            MIX,
            "rows.unflatten(1, (-1, 16)) @ matrix",
        ),
    ],
    hints=[
        "The product sums over tokens. So blocks lie along the tokens: the rows that you quantize are those of dy.T "
        "and of x.T.",
        "The matrix of 2 numbers is [[1, 1], [1, -1]]. Each next one is [[M, M], [M, -M]]; that of 16 is divided by 4.",
        "A block of 16, times the signs, times the matrix. Do it with both operands. The matrix is symmetric and its "
        "own inverse, so the product stays what it was.",
        "Only the gradient gets the chances: quantize(rows, chance). x is rounded to the nearest: quantize(rows).",
    ],
    why="A Blackwell does this in each backward pass of NVIDIA's recipe. The transform is for outliers in both "
    "operands; chance is for the gradient, whose small numbers must arrive on average over thousands of steps.",
)
def weight_gradient(dy, x, signs, chance, quantize):
    """Compute the gradient of a linear layer's weight, dy^T x, from operands in NVFP4. Return [outputs, inputs].

    ``dy`` [tokens, outputs] and ``x`` [tokens, inputs] are float32, with a multiple of 16 tokens. Transform each 16
    tokens of both: multiply them by the 16 ``signs``, then by the Hadamard matrix M16, where M1 = [[1]], M2n = [[Mn,
    Mn], [Mn, -Mn]], and the last is divided by 4. Then quantize: ``quantize(rows)`` rounds a matrix to the nearest in
    NVFP4, in blocks of 16 along its rows, and ``quantize(rows, chance)`` rounds stochastically. ``chance`` [outputs,
    tokens] is for the operand that needs it.
    """
    # ? The matrix of 16 x 16.
    matrix = torch.ones(1, 1)
    while len(matrix) < 16:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    matrix = matrix / 4

    # ? Transform blocks of 16 along the rows.
    def spread(rows):
        return ((rows.unflatten(1, (-1, 16)) * signs) @ matrix).flatten(1)

    # ? Which rows are quantized, and how? What is multiplied?
    left = quantize(spread(dy.T), chance)
    right = quantize(spread(x.T))
    return left @ right.T
