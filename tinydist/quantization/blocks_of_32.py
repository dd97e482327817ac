"""Blocks of 32 weights: Q4_0, Q5_0 (symmetric), Q4_1 (with an offset), Q8_0.

    x       -8   7.6    8   -7    0 ...        d = -8 / -8 = 1: from the number of largest size, with its sign
    q        0    15   15    1    8            x / d + 8, rounded; 16 would not fit: -8 is exact, and 8 becomes 7
    back    -8     7    7   -7    0

    byte j of a row of nibbles holds q[j] low and q[j + 16] high

Codes are computed with d in fp32, which is then kept in fp16: it is rounded twice. So ggml does (blocks.py has the
sources).
"""

import torch

LARGEST = 65504.0  # of fp16, in which offsets are kept


def encode_q4_0(x):
    """[N, 32] to [N, 18]: d | 16 bytes of nibbles."""
    d = signed_largest(x) / -8
    codes = (x * inverse(d) + 8.5).clamp(max=15).to(torch.uint8)
    return torch.cat([fp16_bytes(d), pack(codes)], -1)


def decode_q4_0(blocks):
    d, nibbles = blocks.split([2, 16], -1)
    return from_fp16(d) * (unpack(nibbles).float() - 8)


def encode_q4_1(x):
    """[N, 32] to [N, 20]: d | m | nibbles, where m is the least."""
    low, high = x.aminmax(dim=-1, keepdim=True)
    d = (high - low) / 15
    codes = ((x - low) * inverse(d) + 0.5).clamp(max=15).to(torch.uint8)
    return torch.cat([fp16_bytes(d), fp16_bytes(low), pack(codes)], -1)


def decode_q4_1(blocks):
    d, m, nibbles = blocks.split([2, 2, 16], -1)
    return from_fp16(d) * unpack(nibbles).float() + from_fp16(m)


def encode_q5_0(x):
    """[N, 32] to [N, 22]: d | 32 fifth bits | nibbles."""
    d = signed_largest(x) / -16
    codes = (x * inverse(d) + 16.5).clamp(max=31).to(torch.uint8)
    fifth = (codes >> 4).view(-1, 4, 8) << torch.arange(8, dtype=torch.uint8)  # bit i of byte j is of weight 8 j + i
    return torch.cat([fp16_bytes(d), fifth.sum(-1, dtype=torch.uint8), pack(codes & 15)], -1)


def decode_q5_0(blocks):
    d, fifth, nibbles = blocks.split([2, 4, 16], -1)
    fifth = (fifth.unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8) & 1).flatten(-2)
    return from_fp16(d) * ((unpack(nibbles) | fifth << 4).float() - 16)


def encode_q8_0(x):
    """[N, 32] to [N, 34]: d | 32 bytes. Halves are rounded away from zero."""
    d = x.abs().amax(-1, keepdim=True) / 127
    scaled = x * inverse(d)
    whole = scaled.to(torch.int8)
    codes = whole + scaled.sign() * ((scaled - whole).abs() >= 0.5)
    return torch.cat([fp16_bytes(d), codes.to(torch.int8).view(torch.uint8)], -1)


def decode_q8_0(blocks):
    d, codes = blocks.split([2, 32], -1)
    return from_fp16(d) * codes.contiguous().view(torch.int8).float()


# Parts.


def check_range(operation, x):
    """Scales, steps and offsets are kept in fp16."""
    largest = x.abs().amax().item() if x.numel() else 0.0
    if not largest <= LARGEST:  # or NaN
        limit = f"{LARGEST:.0f}"
        raise ValueError(
            f"{operation}: scales are in fp16, so numbers must be finite and at most {limit}, got {largest}"
        )


def signed_largest(x):
    """Of each row the first number of largest size, with its sign."""
    return x.gather(-1, x.abs().argmax(-1, keepdim=True))


def inverse(d):
    """1 / d; 0 for a block of zeros, or of numbers so small that 1 / d is none."""
    inverse = 1 / d
    return inverse.where(inverse.isfinite(), 0)


def fp16_bytes(x):
    return x.half().view(torch.uint8)


def from_fp16(two_bytes):
    return two_bytes.contiguous().view(torch.float16).float()


def pack(codes):
    """Two of 4 bits in a byte: those of the first half are low."""
    low, high = codes.chunk(2, -1)
    return low | high << 4


def unpack(nibbles):
    return torch.cat([nibbles & 15, nibbles >> 4], -1)
