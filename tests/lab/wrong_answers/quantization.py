"""Wrong answers to the exercises of 21_quantization: each with the property that rejects it, and what it is told."""

import torch
from lab.registered import collection, solved

from tinydist import quantization

WRONG_ANSWERS, wrong = collection()


@wrong("three_bit_blocks", "values", "None")
def quantizes_nothing(x):
    pass


@wrong("three_bit_blocks", "own work", "tinydist.quantization")
def librarys_four_bits(x):
    return quantization.quantize(x, "Q4_0").data[:, :14]


@wrong("three_bit_blocks", "values", "14")
def a_byte_for_each_weight(x):
    d = x.abs().amax(-1, keepdim=True) / 4
    return torch.cat([d.half().view(torch.uint8), (x / d + 4).to(torch.uint8)], -1)


@wrong("products_with_offset", "own work", "tinydist.quantization")
def librarys_product(q_x, d_x, q_w, d_w, m_w):
    w = q_w * d_w.unsqueeze(-1) + m_w.unsqueeze(-1)
    return None, quantization.matmul((q_x * d_x.unsqueeze(-1)).flatten(1), quantization.quantize(w.flatten(1), "Q8_0"))


@wrong("products_with_offset", "values", "the sums")
def sums_over_all_blocks(q_x, d_x, q_w, d_w, m_w):
    sums, y = solved("products_with_offset")(q_x, d_x, q_w, d_w, m_w)
    return sums.sum(-1, dtype=torch.int32), y


@wrong("gptq_in_order", "own work", "tinydist.quantization")
def librarys_gptq(w, G, step):
    inputs = quantization.Inputs(G, G.diagonal(), len(G))
    return quantization.gptq(w.unsqueeze(0), inputs, 4, len(w)).squeeze(0)


@wrong("gptq_in_order", "values", "")
def rounding(w, G, step):
    return (w / step).round() * step
