"""Films of a collective: an algorithm runs on simulated ranks, and each rank's row is kept after each step.

    run = film(ring_all_reduce, my_row)          ring_all_reduce(row, after_step) calls after_step() after each step
    steps(run)                                   start | step 0 | step 1 ...

A sum's letters stand in the order in which the program has added them: ``arrived + mine`` of B3 and C3 is BC3. Numbers
are the same in any order, so the additions themselves are watched.
"""

import torch
from torch.overrides import TorchFunctionMode

from ..launching.launch import launch
from ..rules import listed, validate
from .step_cells import Spelled, in_letters

ADDITIONS = {getattr(torch.Tensor, name) for name in ("add", "add_", "__add__", "__iadd__")} | {torch.add}


@validate(algorithm=callable, start=callable, ranks=listed)
def film(algorithm, start, ranks=4):
    """Run ``algorithm(row, after_step)`` on the row that ``start()`` gives; the result of a rank is a list: its row at
    the start and after each step, as cells of ``steps``."""
    return launch(filmed, ranks, algorithm, start, {}, backend="simulated")


def filmed(algorithm, start, order):
    row = start()
    frames = [cells_of(row, order)]

    def after_step():
        frames.append(cells_of(row, order))

    with Additions(order):
        algorithm(row, after_step)
    return frames


class Additions(TorchFunctionMode):
    """Notes in ``order``, which all ranks share, the letters of each sum, by its number."""

    def __init__(self, order):
        super().__init__()
        self.order = order

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function not in ADDITIONS:
            return function(*args, **(kwargs or {}))
        summands = zip(*(each.flatten().tolist() for each in args[:2]))
        for first, second in [pair for pair in summands if all(pair)]:
            letters = spelled(first, self.order).rstrip("123456789") + spelled(second, self.order)
            self.order[first + second] = Spelled(letters)
        return function(*args, **(kwargs or {}))


def cells_of(row, order):
    return [spelled(value, order) for value in row.tolist()]


def spelled(value, order):
    return order.get(value) or Spelled(in_letters(value))
