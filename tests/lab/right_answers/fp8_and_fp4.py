"""Other right answers to the exercises of 04b_fp8_and_fp4: they must pass."""

import torch
from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("predicted_step")
def layer_by_layer(matrices, tokens, rest, gpus, rate, faster, bandwidth):
    """Each layer's seconds, in both."""
    in_16 = in_8 = rest
    for outputs, inputs in matrices:
        product = 6 * tokens * outputs * inputs / rate
        shard = outputs * inputs / gpus
        optimizer = 28 * shard / bandwidth
        in_16 += product + optimizer
        in_8 += product / faster + 5 * (tokens * (outputs + inputs) + shard) / bandwidth + optimizer
    return in_16, in_8


@right("round_by_chance")
def number_by_number(x, chance):
    """A loop over numbers, in Python."""
    grid = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    found = []
    for number, drawn in zip(x.flatten().tolist(), chance.flatten().tolist()):
        magnitude = min(abs(number), 6)
        low = max(each for each in grid if each <= magnitude)
        above = [each for each in grid if each > magnitude]
        up = above and drawn < (magnitude - low) / (above[0] - low)
        found.append((above[0] if up else low) * (-1 if number < 0 else 1))
    return torch.tensor(found).view_as(x).copysign(x)


@right("quantize_blocks")
def by_distance(x, kind):
    """The nearest of e2m1's numbers by their distances; of two, that of the even mantissa."""
    grid = torch.tensor([0, 1, 2, 4, 0.5, 1.5, 3, 6])  # even ones first: argmin takes the first
    block = {"mx": 32, "nv": 16}[kind]
    blocks = x.view(len(x), -1, block)
    amax = blocks.abs().max(-1).values
    if kind == "mx":
        mantissa, exponent = torch.frexp(amax / 6)
        exponent = exponent - (mantissa == 0.5).int()
        scales = torch.where(amax == 0, 1.0, torch.ldexp(torch.ones_like(amax), exponent))
    else:
        t = x.abs().max() / 6 / 448
        scales = (amax / 6 / t).to(torch.float8_e4m3fn).float() * t
        scales = torch.where(amax == 0, 0.0, scales)
    values = (blocks / torch.where(scales == 0, 1.0, scales)[..., None]).abs().clamp(max=6)
    nearest = grid[(values[..., None] - grid).abs().argmin(-1)]
    return (nearest.copysign(blocks) * scales[..., None]).view_as(x), scales


@right("weight_gradient")
def by_bits_of_places(dy, x, signs, chance, quantize):
    """A sign of the matrix is the parity of the bits that row and column have in common; one large matrix for all."""
    signed = torch.tensor([[(-1.0) ** (row & column).bit_count() / 4 for column in range(16)] for row in range(16)])
    whole = torch.block_diag(*[signs[:, None] * signed] * (len(x) // 16))
    return quantize((whole.T @ dy).T.contiguous(), chance).matmul(quantize((whole.T @ x).T.contiguous()).mT)
