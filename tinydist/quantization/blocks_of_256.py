"""Blocks of 256 weights with scales of scales: Q4_K and Q6_K.

    Q4_K     d, e in fp16 | 8 s and 8 m of 6 bits | 256 q of 4 bits     x = d s q - e m     a pair for each 32 weights
    Q6_K     256 q of 6 bits | 16 s of 8 bits | d in fp16               x = d s (q - 32)    a scale for each 16

Q4_K costs as many bits as Q4_0 and has an offset besides: its scales take 6 bits, not 16. How a block is read is fixed;
how the codes are found is not. Here, as ggml does it, several scales are tried for each group, each is mended by least
squares for the codes that it gives, and the one with the least error stays (make_qkx2_quants and make_qx_quants in
ggml-org/llama.cpp, ggml/src/ggml-quants.c, read in copies; it weights errors by size, we do not).
"""

import torch

from .blocks_of_32 import fp16_bytes, from_fp16, inverse, pack, signed_largest

TRIED = torch.linspace(-1, 1, 21).tolist()  # codes by which the range is stretched


def encode_q4_k(x):
    """[N, 256] to [N, 144]."""
    groups = x.view(-1, 8, 32)
    scale, offset = affine(groups, 15)  # [N, 8, 1] each
    d, e = scale.amax(1) / 63, offset.amax(1) / 63  # [N, 1]
    s, m = nearest(scale.squeeze(-1) * inverse(d), 63), nearest(offset.squeeze(-1) * inverse(e), 63)  # [N, 8]
    d, e = d.half(), e.half()
    step, shift = (d.float() * s).unsqueeze(-1), (e.float() * m).unsqueeze(-1)
    codes = nearest((groups + shift) * inverse(step), 15).to(torch.uint8).view(-1, 4, 64)
    return torch.cat([fp16_bytes(d), fp16_bytes(e), pack_six_bits(s, m), pack(codes).flatten(1)], -1)


def decode_q4_k(blocks):
    d, e, scales, nibbles = blocks.split([2, 2, 12, 128], -1)
    s, m = unpack_six_bits(scales)
    step, shift = (from_fp16(d) * s).unsqueeze(-1), (from_fp16(e) * m).unsqueeze(-1)
    nibbles = nibbles.unflatten(-1, (4, 32))  # a byte has a weight of one group low, and of the next high
    codes = torch.stack([nibbles & 15, nibbles >> 4], 2).view(-1, 8, 32)
    return (step * codes.float() - shift).flatten(1)


def encode_q6_k(x):
    """[N, 256] to [N, 210]."""
    groups = x.view(-1, 16, 16)
    scale = symmetric(groups, 32)  # [N, 16, 1]
    d = signed_largest(scale.squeeze(-1)) / -128
    s = (scale.squeeze(-1) * inverse(d)).round().clamp(-128, 127)
    d = d.half()
    step = (d.float() * s).unsqueeze(-1)
    codes = ((groups * inverse(step)).round().clamp(-32, 31) + 32).to(torch.uint8)
    codes = codes.view(-1, 2, 4, 32)  # of half a block: 4 rows
    low = codes[:, :, :2] & 15 | (codes[:, :, 2:] & 15) << 4
    high = (codes >> 4 << torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(4, 1)).sum(2, dtype=torch.uint8)
    return torch.cat([low.flatten(1), high.flatten(1), s.to(torch.int8).view(torch.uint8), fp16_bytes(d)], -1)


def decode_q6_k(blocks):
    low, high, s, d = blocks.split([128, 64, 16, 2], -1)
    low = low.view(-1, 2, 2, 32)
    high = high.view(-1, 2, 1, 32) >> torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(4, 1)
    codes = torch.cat([low & 15, low >> 4], 2) | (high & 3) << 4
    step = from_fp16(d) * s.contiguous().view(torch.int8).float()  # [N, 16]
    return (step.unsqueeze(-1) * (codes.view(-1, 16, 16).float() - 32)).flatten(1)


# The search for scales.


def affine(x, levels):
    """Scale and offset, both >= 0, with which x is about scale q - offset for q of 0 to ``levels``: [..., 1] each."""
    low, high = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True)
    return least_error(x, levels, ((levels + more) * inverse(high - low) for more in TRIED), low)


def least_error(x, levels, inverses, low):
    best = [torch.full_like(low, torch.inf), torch.zeros_like(low), -low]
    for each in inverses:
        codes = nearest((x - low) * each, levels)
        mean, center = codes.mean(-1, keepdim=True), x.mean(-1, keepdim=True)
        spread = (codes - mean).square().sum(-1, keepdim=True)
        scale = ((codes - mean) * x).sum(-1, keepdim=True) * inverse(spread)
        offset = (scale * mean - center).clamp(min=0)
        without = (codes * x).sum(-1, keepdim=True) * inverse(codes.square().sum(-1, keepdim=True))
        scale = torch.where(offset > 0, scale, without).clamp(min=0)
        error = (scale * codes - offset - x).square().sum(-1, keepdim=True)
        best = [torch.where(error < best[0], new, old) for new, old in zip([error, scale, offset], best)]
    return best[1:]


def symmetric(x, levels):
    """The scale with which x is about scale q for q of -``levels`` to ``levels`` - 1: [..., 1]."""
    largest = signed_largest(x)
    best = [torch.full_like(largest, torch.inf), torch.zeros_like(largest)]
    for more in TRIED:
        codes = (x * -(levels + more) * inverse(largest)).round().clamp(-levels, levels - 1)
        scale = (codes * x).sum(-1, keepdim=True) * inverse(codes.square().sum(-1, keepdim=True))
        error = (scale * codes - x).square().sum(-1, keepdim=True)
        best = [torch.where(error < best[0], new, old) for new, old in zip([error, scale], best)]
    return best[1]


def nearest(x, largest):
    return x.round().clamp(0, largest)


# Six bits: the upper two of the later four scales lie above those of the first four.


def pack_six_bits(s, m):
    """[N, 8] each to [N, 12]."""
    (s, later_s), (m, later_m) = (each.to(torch.uint8).chunk(2, -1) for each in (s, m))
    return torch.cat([s | later_s >> 4 << 6, m | later_m >> 4 << 6, later_s & 15 | (later_m & 15) << 4], -1)


def unpack_six_bits(scales):
    s, m, lower = scales.split([4, 4, 4], -1)
    s = torch.cat([s & 63, lower & 15 | s >> 6 << 4], -1)
    m = torch.cat([m & 63, lower >> 4 | m >> 6 << 4], -1)
    return s.float(), m.float()
