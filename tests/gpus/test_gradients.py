"""Gradients are where their tensors are."""

import pytest
import torch
from gpus.on_gpus import on_gpus, where
from torch import nn


def test_gradients_are_where_their_tensors_are():
    """Those that C++ makes in backward, too."""
    through = {
        "move": lambda p: p.cpu(),
        "dtype": lambda p: p.to(torch.float64),
        "slice": lambda p: p[1:],
        "index": lambda p: p[torch.tensor([0, 1])],
        "index_select": lambda p: p.index_select(0, torch.tensor([0], device="cuda")),
        "gather": lambda p: p.gather(0, torch.zeros(1, 3, dtype=torch.long, device="cuda")),
        "expand": lambda p: p.expand(2, 4, 3),
        "unbind": lambda p: p.unbind()[0],
        "split": lambda p: p.split(2)[0],
        "diagonal": lambda p: p.diagonal(),
        "max": lambda p: p.max(0)[0],
        "sort": lambda p: p.sort(0)[0],
        "cumsum": lambda p: p.cumsum(0),
        "prod": lambda p: p.prod(),
        "embedding": lambda p: nn.functional.embedding(torch.tensor([1], device="cuda"), p),
        "sparse": lambda p: nn.functional.embedding(torch.tensor([1], device="cuda"), p, sparse=True),
    }

    def program():
        found = {}
        for name, function in through.items():
            p = torch.ones(4, 3, device="cuda", requires_grad=True)
            function(p).sum().backward()
            found[name] = where(p.grad)
        host, unused = torch.ones(3, requires_grad=True), torch.ones(2, device="cuda", requires_grad=True)
        (host.cuda() * 2).sum().backward()
        used = torch.ones(2, device="cuda", requires_grad=True)
        grads = torch.autograd.grad(used.sum(), [used, unused], allow_unused=True, materialize_grads=True)
        return found, where(host.grad, *grads)

    found, others = on_gpus(program)
    assert found == dict.fromkeys(through, "cuda:0") and others == "cpu cuda:0 cuda:0"


def test_gradients_in_functions_and_hooks():
    seen = []

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * 2, y * 2

        @staticmethod
        def backward(ctx, gx, gy):  # of the second, torch makes zeros
            seen.append(where(gx, gy))
            return gx * 2, gy * 2

    def program():
        x, y = (torch.ones(3, device="cuda", requires_grad=True) for _ in range(2))
        x.register_hook(lambda grad: seen.append(where(grad)))
        x.register_post_accumulate_grad_hook(lambda x: seen.append(where(x.grad)))
        Twice.apply(x, y)[0].sum().backward()
        return where(x.grad, y.grad)

    assert on_gpus(program) == "cuda:0 cuda:0"
    assert seen == ["cuda:0 cuda:0", "cuda:0", "cuda:0"]


@pytest.mark.xfail(reason="C++ compares the device of a gradient that is assigned")
def test_a_gradient_of_the_host_is_refused():
    def program():
        torch.nn.Parameter(torch.ones(3, device="cuda")).grad = torch.ones(3)

    with pytest.raises(RuntimeError, match="assigned grad has data located on a different device"):
        on_gpus(program)
