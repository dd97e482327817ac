"""A collective that writes into a tensor of a graph: backward warns where gloo's does."""

import warnings

import pytest
import torch
import torch.distributed as dist

from tinydist import launch
from tinydist.collectives import autograd
from tinydist.simulator.autograd_warning import UnseenByAutograd


def in_place():
    y = 2 * torch.ones(3, requires_grad=True)
    dist.all_reduce(y)
    return y


def broadcast():
    y = 2 * torch.ones(3, requires_grad=True)
    dist.broadcast(y, 0)
    return y


def on_numbers():
    y = 2 * torch.ones(3, requires_grad=True)
    dist.all_reduce(y.detach())
    return y


def without_grad():
    y = 2 * torch.ones(3, requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(y)
    return y


def in_a_function():
    return autograd.all_reduce(2 * torch.ones(3, requires_grad=True))


def warned(make, backward, backend):
    def program():
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            y = make()
            if backward:
                y.sum().backward()
        return [str(each.message) for each in found if "silently incorrect" in str(each.message)]

    return launch(program, 1, backend=backend).results[0]


@pytest.mark.parametrize("make", [in_place, broadcast, on_numbers, without_grad, in_a_function])
@pytest.mark.parametrize("backward", [True, False])
def test_warns_where_gloo_does(make, backward):
    simulated, gloo = (warned(make, backward, backend) for backend in ("simulated", "gloo"))
    assert bool(simulated) == bool(gloo) == (backward and make in (in_place, broadcast))


def test_says_which_call_and_where():
    [told] = warned(in_place, True, "simulated")
    assert told.startswith("all_reduce at ") and "test_autograd_warning.py" in told


def test_it_can_be_made_an_error():
    def program():
        with warnings.catch_warnings():
            warnings.simplefilter("error", UnseenByAutograd)
            in_place().sum().backward()

    with pytest.raises(UnseenByAutograd, match="Autograd does not see"):
        launch(program, 1, backend="simulated")
