"""How far two right results may lie apart: bounds that come from the dtype, and hold on every processor."""

import torch


def between_orders(dtype, terms, magnitude):
    """Two sums of the same terms in another order, or with fused multiply-adds.

    Each errs by at most n u, times the sum of the terms' magnitudes, where u is half of eps (Higham 2002, Accuracy and
    Stability of Numerical Algorithms, section 4.2, to the first order). For sums of sums n is the sum of their lengths.
    """
    return terms * torch.finfo(dtype).eps * magnitude


def distance(found, exact):
    """Of two dictionaries of tensors, as one vector each."""
    return torch.stack([(found[name].double() - exact[name].double()).norm() for name in exact]).norm().item()
