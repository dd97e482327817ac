"""What collectives mean, by hand."""

import torch
from torch.distributed import ReduceOp

from tinydist.collectives import reference

A, B, C = (torch.tensor([number]) for number in (1, 10, 100))
ROWS = [[A, B], [C, A]]


def plain(result):
    """Tensors as numbers, whatever holds them."""
    return result.item() if isinstance(result, torch.Tensor) else result and [plain(each) for each in result]


def test_from_one():
    assert plain(reference.broadcast([A, B, C], root=1)) == [10, 10, 10]
    assert plain(reference.scatter([A, B, C])) == [1, 10, 100]


def test_to_one():
    assert plain(reference.gather([A, B, C], root=2)) == [None, None, [1, 10, 100]]
    assert plain(reference.reduce([A, B, C], root=1)) == [1, 111, 100]


def test_to_all():
    assert plain(reference.all_gather([A, B])) == [[1, 10], [1, 10]]
    assert plain(reference.all_reduce([A, B, C])) == [111, 111, 111]
    assert plain(reference.all_reduce([A, B, C], ReduceOp.MAX)) == [100, 100, 100]
    assert plain(reference.all_reduce([A, B, C], ReduceOp.AVG)) == [37, 37, 37]
    assert plain(reference.reduce_scatter(ROWS)) == [101, 11]
    assert plain(reference.all_to_all(ROWS)) == [[1, 100], [10, 1]]


def test_nothing_given_is_changed():
    assert plain([A, B, C]) == [1, 10, 100]


def test_all_reduce_is_reduce_scatter_and_all_gather():
    both = reference.all_gather(reference.reduce_scatter(ROWS))
    assert plain(both) == [[101, 11]] * 2 == plain(zip(*(reference.all_reduce(column) for column in zip(*ROWS))))
