"""Conjugate pairs: backward is the transpose of forward, over the numbers of all ranks."""

import re

import pytest
import torch
import torch.distributed as dist
from torch.distributed.nn import functional as torchs

import tinydist
from tinydist.collectives import autograd

WORLDS = (1, 2, 3, 4, 8)
SENT = {p: [[(1 + source + 2 * destination) % 3 for destination in range(p)] for source in range(p)] for p in WORLDS}


def uneven(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    sent, received = SENT[p][rank], [row[rank] for row in SENT[p]]
    return autograd.all_to_all(tensor[: sum(sent)], sent, received)


FORWARD = {
    "broadcast": lambda x: autograd.broadcast(x, src=dist.get_world_size() - 1),
    "reduce": lambda x: autograd.reduce(x, dst=dist.get_world_size() - 1),
    "scatter": lambda x: autograd.scatter(x, src=0),
    "gather": lambda x: autograd.gather(x, dst=0),
    "gather along 1": lambda x: autograd.gather(x, dst=0, dim=1),
    "all_gather": autograd.all_gather,
    "all_gather along 1": lambda x: autograd.all_gather(x, dim=1),
    "reduce_scatter": autograd.reduce_scatter,
    "reduce_scatter of a view": lambda x: autograd.reduce_scatter(x.t(), dim=1),
    "all_reduce": autograd.all_reduce,
    "all_to_all": autograd.all_to_all,
    "all_to_all, uneven": uneven,
}
each_collective = pytest.mark.parametrize("name", FORWARD)


def values(shape, seed):
    generator = torch.Generator().manual_seed(seed + 17 * dist.get_rank())
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def both_products(name):
    """<forward(x), y> and <x, backward(y)>, summed over ranks they are the same: that is what a transpose is."""
    x = values((24, 3), seed=0).requires_grad_()
    out = FORWARD[name](x)
    y = values(out.shape, seed=1)
    (gradient,) = torch.autograd.grad(out, x, y)
    return (out.detach() * y).sum(), (x.detach() * gradient).sum()


@each_collective
@pytest.mark.parametrize("p", WORLDS)
def test_backward_is_the_transpose(name, p):
    forward, backward = zip(*tinydist.launch(both_products, p, name).results)
    assert torch.isclose(sum(forward), sum(backward), rtol=1e-12)
    assert sum(forward).abs() > 0.01


def test_forward_equals_torchs_own():
    def program():
        x, p = values((6, 2), seed=0), dist.get_world_size()
        gathered = [torch.empty_like(x) for _ in range(p)]
        dist.all_gather(gathered, x)
        assert torch.equal(autograd.all_gather(x), torch.cat(gathered))
        assert torch.equal(autograd.all_gather(x, dim=1), torch.cat(gathered, 1))
        total = sum(gathered[1:], start=gathered[0])
        assert torch.allclose(autograd.all_reduce(x), total)
        assert torch.allclose(autograd.reduce_scatter(x), total.chunk(p)[dist.get_rank()])
        assert torch.allclose(autograd.reduce(x, dst=1), total if dist.get_rank() == 1 else torch.zeros_like(x))
        assert torch.equal(autograd.broadcast(x, src=2), gathered[2])
        assert torch.equal(autograd.scatter(x, src=2), gathered[2].chunk(p)[dist.get_rank()])
        whole = autograd.gather(x, dst=1)
        assert torch.equal(whole, torch.cat(gathered) if dist.get_rank() == 1 else torch.zeros(18, 2))
        assert torch.equal(autograd.all_to_all(x), torch.cat([each.chunk(p)[dist.get_rank()] for each in gathered]))
        return True

    assert tinydist.launch(program, 3).results == [True] * 3


@pytest.mark.filterwarnings("ignore:torch.distributed.nn.functional:FutureWarning")
def test_gradients_equal_those_of_torchs_own():
    def gradients(library):
        x = values((4, 2), seed=0).requires_grad_()
        (library.all_reduce(x) * values((4, 2), seed=1)).sum().backward()
        return x.grad

    def program():
        return gradients(autograd), gradients(torchs)

    for ours, theirs in tinydist.launch(program, 4).results:
        assert torch.allclose(ours, theirs)


def cut_layer(x, weight, target):
    """A layer whose rows are cut over the ranks: each sees its part of the input, and the parts add up."""
    rank, p = dist.get_rank(), dist.get_world_size()
    mine = weight.chunk(p)[rank].clone().requires_grad_()
    out = autograd.all_reduce(x.chunk(p, 1)[rank] @ mine)
    ((out - target) ** 2).sum().div(p).backward()  # the same loss on every rank: 1/p of it each
    return mine.grad


def test_gradients_equal_those_of_one_process():
    generator = torch.Generator().manual_seed(0)
    x, weight, target = (torch.randn(shape, generator=generator) for shape in [(5, 8), (8, 3), (5, 3)])
    (whole,) = tinydist.launch(cut_layer, 1, x, weight, target).results
    for p in (2, 4, 8):
        parts = tinydist.launch(cut_layer, p, x, weight, target).results
        assert torch.allclose(torch.cat(parts), whole, atol=1e-5)


def test_backward_can_be_differentiated():
    def program():
        x = values((3, 2), seed=0).requires_grad_()
        (first,) = torch.autograd.grad((autograd.all_gather(x) ** 3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return torch.allclose(second, 6 * x * dist.get_world_size())

    assert tinydist.launch(program, 3).results == [True] * 3


def test_backward_sends_what_forward_sends():
    def forward(x):
        return autograd.all_gather(x)

    def both(x):
        forward(x.requires_grad_()).sum().backward()

    one, two = (tinydist.launch(fn, 4, torch.ones(100)).traffic for fn in (forward, both))
    assert two == [[2 * nbytes for nbytes in row] for row in one]
    assert sum(map(sum, one)) == 4 * 3 * 400


def test_parts_that_are_not_equal():
    message = "dim 0 of shape [6, 2] must be divisible by the number of ranks (4) (rank 0)"
    with pytest.raises(ValueError, match=re.escape(message)):
        tinydist.launch(lambda: autograd.reduce_scatter(torch.ones(6, 2)), 4)


def test_on_processes():
    results = tinydist.launch(both_products, 3, "reduce_scatter", backend="gloo", timeout=60).results
    forward, backward = zip(*results)
    assert torch.isclose(sum(forward), sum(backward), rtol=1e-12)
