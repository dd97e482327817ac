"""Wrong answers to the exercises of 04b_fp8_and_fp4: each with the property that rejects it, and what it is told."""

import torch
import torch.nn.functional as F
from lab.registered import collection, solved

from tinydist import precision

WRONG_ANSWERS, wrong = collection()


@wrong("predicted_step", "values", "None")
def predicts_nothing(*arguments):
    pass


@wrong("predicted_step", "values", "the wrong way round")
def swapped(*arguments):
    in_16, in_8 = solved("predicted_step")(*arguments)
    return in_8, in_16


@wrong("predicted_step", "values", "in 8 bits")
def by_the_data_sheet(matrices, tokens, rest, gpus, rate, faster, bandwidth):
    in_16, _ = solved("predicted_step")(matrices, tokens, rest, gpus, rate, faster, bandwidth)
    return in_16, in_16 / 2


@wrong("predicted_step", "values", "in 8 bits")
def casts_nothing(matrices, tokens, rest, gpus, rate, faster, bandwidth):
    return solved("predicted_step", "numbers * 5", "numbers * 0")(matrices, tokens, rest, gpus, rate, faster, bandwidth)


@wrong("quantize_blocks", "own work", "tinydist.precision")
def librarys_blocks(x, kind):
    found = (precision.fp4.mxfp4 if kind == "mx" else precision.fp4.nvfp4)(x)
    return found.dequantize(), found.scale


@wrong("quantize_blocks", "values", "the numbers")
def not_rounded(x, kind):
    _, scales = solved("quantize_blocks")(x, kind)
    return x.clone(), scales


@wrong("quantize_blocks", "values", "a tuple of 2 things")
def numbers_alone(x, kind):
    return solved("quantize_blocks")(x, kind)[0]


@wrong("round_by_chance", "own work", "tinydist.precision")
def librarys_rounding(x, chance):
    return precision.round_to(x, "fp4 e2m1", "stochastic")


@wrong("round_by_chance", "values", "")
def draws_its_own(x, chance):
    return solved("round_by_chance")(x, torch.rand(x.shape, generator=torch.Generator().manual_seed(9)))


@wrong("round_by_chance", "values", "None")
def rounds_nothing(x, chance):
    pass


@wrong("weight_gradient", "values", "None")
def multiplies_nothing(*arguments):
    pass


@wrong("weight_gradient", "values", "quantize is never called")
def exact(dy, x, signs, chance, quantize):
    return dy.T @ x


@wrong("weight_gradient", "own work", "tinydist.precision")
def librarys_transform(dy, x, signs, chance, quantize):
    left, right = (precision.fp4.hadamard(each.T.contiguous(), signs) for each in (dy, x))
    return quantize(left, chance) @ quantize(right).T


@wrong("weight_gradient", "values", "x gets chances")
def chances_for_both(dy, x, signs, chance, quantize):
    drawn = torch.rand(x.shape[1], len(x), generator=torch.Generator().manual_seed(9))
    right = "quantize(spread(x.T))"
    answer = solved("weight_gradient", right, right.replace("x.T)", "x.T), drawn"), drawn=drawn)
    return answer(dy, x, signs, chance, quantize)


@wrong("weight_gradient", "values", "quantize is called once")
def rounds_the_product(dy, x, signs, chance, quantize):
    product = dy.T @ x
    return quantize(F.pad(product, (0, -product.shape[1] % 16)))[:, : product.shape[1]]
