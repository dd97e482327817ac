"""Of two values: are they close, off by a little, in the same memory? And what a value is, in words."""

import torch

SLIGHTLY = 1.0  # percent: bfloat16 rounds by 0.4 at most


def slightly_off(mine, right):
    """In percent, if many numbers are wrong, and all by a little only, as numbers of 16 bits would be."""
    mine, right = mine.double(), right.double()
    off = 100 * float((mine - right).norm() / right.norm())
    many = (~torch.isclose(mine, right, rtol=1e-4, atol=1e-5)).sum() >= mine.numel() / 4
    return off if many and off < SLIGHTLY else None


def close(a, b):
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5)


def shares_memory(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != 0


def kind(value):
    return "nothing (None)" if value is None else f"an object of type {type(value).__name__}"
