"""tinydist's text for benchmarks that train: sequences, the last tenth held out, and its hash for their tables."""

import hashlib

import torch

from tinydist.model import load_text

HELD_OUT = 10  # one part in so many


def text_hash():
    return hashlib.sha256(load_text().numpy().tobytes()).hexdigest()[:16]


def first_held_out():
    """The place of the first byte that no training sequence has."""
    return len(load_text()) * (HELD_OUT - 1) // HELD_OUT


def sequences(starts, length):
    """``starts`` [B, 1] to tokens and targets, [B, length] each."""
    rows = load_text()[starts + torch.arange(length + 1)].long()
    return rows[:, :-1], rows[:, 1:]
