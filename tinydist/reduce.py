"""Reduction of the tensors of several ranks, in rank order: pairwise as messages arrive, or all at once."""

import torch

COMBINE = {
    "SUM": torch.add,
    "AVG": torch.add,  # divided once, at the end
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


def finish(total, reduction, ranks):
    """The tensors of all ranks are in ``total``: a mean is divided now, integers towards zero."""
    if reduction == "AVG":
        # As torch does; a complex number divided by a complex one is rounded more than once
        for part in (total.real, total.imag) if total.is_complex() else (total,):
            part.div_(ranks, rounding_mode=None if part.is_floating_point() else "trunc")
    return total


def reduced(tensors, reduction):
    """One new tensor from those of all ranks."""
    combine = COMBINE[reduction]
    first, *rest = tensors
    total = combine(first, rest[0]) if rest else first.clone()
    for tensor in rest[1:]:
        combine(total, tensor, out=total)
    return finish(total, reduction, len(tensors))
