"""One bit per element: the sign. Eight of them are a byte; zero counts as positive, as one bit has no third value."""

import torch


def pack(numbers):
    """Their signs: [n] floats, n a multiple of 8, to [n/8] bytes. The first of eight is the highest bit."""
    return ((numbers >= 0).view(-1, 8) * places(numbers.device)).sum(1, dtype=torch.uint8)


def unpack(packed):
    """1.0 or -1.0 for each bit: bytes [..., m] to float32 [..., 8m]."""
    bits = packed.unsqueeze(-1).bitwise_and(places(packed.device)) > 0
    return bits.flatten(-2).float().mul_(2).sub_(1)


def places(device):
    return torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=device)
