"""Many microbatches, added up in the dtype of the parameters or in fp32: what is lost, and what is sent."""

from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tinydist
from tinydist.data_parallel import DDP, hooks
from tinydist.precision import MasterWeights

MICROBATCHES = 1024


def layer():
    torch.manual_seed(0)
    return nn.Linear(16, 16, bias=False, dtype=torch.bfloat16)


def rows(number, rank):
    return torch.randn(4, 16, generator=torch.Generator().manual_seed(2 * number + rank)).bfloat16()


def backward(model, number, rank):
    """Its gradient is all positive: what is added up grows, and the shares stay as small."""
    (model(rows(number, rank)) ** 2).float().mean().backward()


def added_up(wrap, microbatches=MICROBATCHES):
    """The mean gradient, of all ranks and microbatches."""
    model, rank = wrap(layer()), dist.get_rank()
    with model.no_sync():
        for number in range(microbatches - 1):
            backward(model, number, rank)
    backward(model, microbatches - 1, rank)
    return next(model.parameters()).grad.double() / microbatches


def exactly(microbatches=MICROBATCHES):
    """The same, from the same gradients in bf16, with nothing lost in adding up."""
    total = torch.zeros(16, 16, dtype=torch.float64)
    for rank in (0, 1):
        for number in range(microbatches):
            model = layer()
            backward(model, number, rank)
            total += model.weight.grad.double()
    return total / 2 / microbatches


def error(found, exact):
    return ((found - exact).norm() / exact.norm()).item()


@pytest.fixture(scope="module")
def exact():
    return exactly()


def in_fp32(model, **options):
    return DDP(model, grad_dtype=torch.float32, **options)


def test_1024_microbatches_in_bf16_lose_a_tenth_and_in_fp32_nothing(exact):
    """As torch's own do."""
    ours, theirs, wide = (
        tinydist.launch(added_up, 2, wrap, observe=False).results for wrap in (DDP, DistributedDataParallel, in_fp32)
    )
    assert all(torch.equal(found, ours[0]) for found in (*ours, *theirs))
    assert 0.05 < error(ours[0], exact) < 0.2
    assert torch.equal(*wide) and error(wide[0], exact) < 1e-6


def test_it_is_what_the_parameter_says():
    """The option is a short way to say ``grad_dtype`` of each."""

    def said(model):
        model.weight.grad_dtype = torch.float32
        return DDP(model)

    first, second = (tinydist.launch(added_up, 2, wrap, 8).results[0] for wrap in (in_fp32, said))
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    "wrap, nbytes",
    [(DDP, 2), (in_fp32, 4), (lambda model: in_fp32(model, hook=hooks.compressed()), 2)],
    ids=["bf16", "fp32", "fp32, sent as bf16"],
)
def test_bytes_that_are_sent_and_held(wrap, nbytes):
    run = tinydist.launch(added_up, 2, wrap, 4)
    (sent,) = [event.transfer.nbytes for event in run.trace.of(0) if event.name == "all_reduce"]
    assert sent == nbytes * 256

    def wrapped():
        return sum(bucket.flat.nbytes for bucket in wrap(layer()).reducer.buckets)

    assert tinydist.launch(wrapped, 2).results == [(2 if wrap is DDP else 4) * 256] * 2


def test_master_weights_take_them_as_they_are():
    """A share that 16 bits would lose: 1 + 2^-10 is 1 in bf16."""

    def program(wrap):
        weight = nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
        module = nn.Module()
        module.weight, module.forward = weight, lambda share: (weight * share).sum()
        model = wrap(module)
        optimizer = MasterWeights([weight], torch.optim.SGD, lr=1.0)
        for number, share in enumerate([1.0, 2.0**-10]):
            with nullcontext() if number else model.no_sync():
                model(torch.tensor(share).bfloat16()).backward()
        optimizer.step()
        return optimizer.masters[weight].item()

    assert tinydist.launch(program, 2, DDP).results == [-1.0] * 2
    assert tinydist.launch(program, 2, in_fp32).results == [-1 - 2.0**-10] * 2
