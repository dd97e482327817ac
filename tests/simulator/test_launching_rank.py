"""A rank that has no others may launch ranks: it waits for them, and goes on as before."""

import pytest
import torch
import torch.distributed as dist

import tinydist
from tinydist import launch


def train():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    if dist.get_world_size() > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return model(torch.ones(2, 4)).sum().item()


def test_it_goes_on_as_before():
    def program():
        first, found = train(), launch(train, 4)
        total = torch.ones(1)
        dist.all_reduce(total)
        dist.all_reduce(total, group=dist.new_group([0]))
        return first, found.results, train(), total.item(), found.memory[3].peak

    run = launch(program, 1)
    ((first, inner, last, total, peak),) = run.results
    assert first == last and inner == [first] * 4 and total == 1.0
    assert peak == launch(train, 4).memory[3].peak  # the ledgers are apart
    alone = launch(lambda: (train(), train()), 1)
    assert run.memory[0].at_peak["optimizer states"] == alone.memory[0].at_peak["optimizer states"]


def test_a_failure_of_its_ranks_is_raised_there():
    def program():
        with pytest.raises(ZeroDivisionError):
            launch(lambda: 1 / 0, 2)
        with pytest.raises(tinydist.DeadlockError):
            launch(lambda: dist.get_rank() or dist.barrier(), 2)
        return launch(dist.get_world_size, 3).results

    assert launch(program, 1).results == [[3, 3, 3]]


def test_a_rank_that_has_others_may_not():
    with pytest.raises(RuntimeError, match=r"nested launch\(\) is not supported"):
        launch(lambda: launch(print, 2), 2)
