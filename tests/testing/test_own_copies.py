"""Each rank has its own copy of what fixtures made."""

import threading

import torch
from torch import nn

from tinydist.testing.own_copies import own_copies

pytest_plugins = ["pytester"]


def test_copies_share_what_the_originals_share():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    (_, first), (_, second) = own_copies(([], {"model": model, "optimizer": optimizer}), 2)
    weights = [each["model"].weight for each in (first, second)] + [model.weight]
    assert len({weight.data_ptr() for weight in weights}) == 3
    assert all(each["optimizer"].param_groups[0]["params"][0] is each["model"].weight for each in (first, second))


def test_what_cannot_be_copied_is_one_for_all():
    lock, shared = threading.Lock(), torch.ones(1).share_memory_()
    args = [lock, {"list": [shared]}, (1 for _ in range(1))]
    (first, _), (second, _) = own_copies((args, {}), 2)
    assert first[0] is second[0] is lock and first[1]["list"][0] is second[1]["list"][0] is shared
    assert first[2] is second[2] and first[1] is not second[1]


def test_ranks_do_not_disturb_each_other(tests):
    source = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel

@pytest.fixture
def model(): return nn.Linear(2, 1)

@pytest.mark.ranks(3)
def test_gradients(model, rank):
    ddp = DistributedDataParallel(model)
    ddp(torch.full((1, 2), float(rank))).sum().backward()
    assert model.weight.grad.tolist() == [[1, 1]]

@pytest.mark.ranks(3)
@pytest.mark.parametrize("batch", [[]])
def test_parameters(batch, rank):
    batch.append(rank)
    dist.barrier()
    assert batch == [rank]

@pytest.mark.ranks(2)
def test_pytests_own(monkeypatch, request, tmp_path_factory):
    monkeypatch.setattr(sys, "of_a_test", 1, raising=False)
    dist.barrier()
    assert request.node.name == "test_pytests_own"

def test_afterwards(): assert not hasattr(sys, "of_a_test")
"""
    assert tests(source).outcomes == {"passed": 4}
