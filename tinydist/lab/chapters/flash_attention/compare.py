"""A wrong tensor, and the mistake that makes it."""

import torch

from ...errors import Wrong
from ...values import kind


def tensors(trial, names, shapes):
    """The answer returned tensors of these shapes, float32."""
    got = trial.returned[0]
    if not isinstance(got, tuple | list) or len(got) != len(names):
        have = f"{len(got)} things" if isinstance(got, tuple | list) else kind(got)
        raise Wrong(f"it returned {have}, where {len(names)} tensors are right: {', '.join(names)}")
    for name, tensor, shape in zip(names, got, shapes, strict=True):
        one_tensor(name, tensor, shape)


def one_tensor(name, tensor, shape):
    if not isinstance(tensor, torch.Tensor):
        raise Wrong(f"{name} is {kind(tensor)}, where a tensor of shape {list(shape)} is right")
    if tensor.shape != shape:
        raise Wrong(f"{name} has shape {list(tensor.shape)}, where {list(shape)} is right")
    if tensor.dtype != torch.float32:
        raise Wrong(f"{name} is of {str(tensor.dtype).removeprefix('torch.')}, where float32 is right")


def untouched_arguments(trial, names):
    for name, before, after in zip(names, trial.case.arguments(0), trial.arguments[0]):
        for old, new in zip(before, after, strict=True) if isinstance(before, tuple) else ((before, after),):
            if isinstance(old, torch.Tensor) and not (old.shape == new.shape and old.allclose(new, equal_nan=True)):
                raise Wrong(
                    f"{name} has changed: it belongs to the caller, who may need it again. Make new tensors, without "
                    "*=, /=, += and out="
                )


def alike(a, b, nan=False, rtol=1e-4):
    return torch.allclose(a.double(), b.double(), rtol=rtol, atol=1e-5, equal_nan=nan)


def right(name, got, expected, suspects=lambda: {}, unknown="", rtol=1e-4):
    """``suspects()``: words for a mistake -> what it gives. ``unknown``: said where none of them gives what came."""
    if alike(got, expected, rtol=rtol):
        return
    mistakes = suspects() if got.isfinite().any() and got.any() else {}
    known = (words for words, wrong in mistakes.items() if alike(got, wrong, nan=True))
    reason = next(known, unknown)
    raise Wrong(first_difference(name, got, expected) + (f".\n{sentence(reason)}" if reason else ""))


def sentence(words):
    return words if words.startswith("dscores") else words[0].upper() + words[1:]


def first_difference(name, got, expected):
    wrong = ~torch.isclose(got.double(), expected.double(), rtol=1e-4, atol=1e-5)
    place = wrong.nonzero()[0].tolist()
    count = f"{int(wrong.sum())} of {wrong.numel()}"
    return (
        f"{count} numbers of {name} are wrong: {name}[{', '.join(map(str, place))}] is {got[tuple(place)].item():.5g}, "
        f"where {expected[tuple(place)].item():.5g} is right"
    )
