"""Forward once more: the same numbers, less held, a third more compute."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from pipeline_parallel.tiny_pipeline import assert_equals_one_process
from torch import nn

import tinydist
from tinydist.pipeline_parallel import Worker, make_schedule
from tinydist.pipeline_parallel.recompute import Again


@pytest.mark.parametrize("name", ["GPipe", "1F1B", "ZB-V"])
def test_equals_one_process(name):
    assert_equals_one_process(make_schedule(name, 2, 4), recompute=True)


def test_dropout_drops_the_same():
    x, dropout = torch.ones(100, requires_grad=True), nn.Dropout()
    again = Again(dropout, x)
    after = torch.rand(3)
    torch.autograd.backward(again.edge(), torch.ones(100))
    assert torch.equal(x.grad, again.output) and 0 < x.grad.count_nonzero() < 100
    again = Again(lambda x: x, x)
    state = torch.get_rng_state()
    again.edge()
    assert torch.equal(torch.get_rng_state(), state) and len(after) == 3


def held(recompute):
    """Bytes of activations at most, on the last of 2 ranks, and FLOPs of all."""
    schedule, rows, width = make_schedule("GPipe", 2, 8), 64, 64

    def program():
        stage = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(4)])
        worker = Worker(
            schedule, {dist.get_rank(): stage}, torch.empty(rows, width, device="meta"), F.mse_loss, recompute=recompute
        )
        worker.step(*[torch.zeros(1, width).expand(8 * rows, width)] * 2)

    run = tinydist.launch(program, 2)
    flops = sum(getattr(entry, "flops", 0) for program in run.record.programs for entry in program)
    most = max(purposes["activations"] for _, purposes in run.memory[1].over_time())
    return most / (rows * width * 4), flops


def test_inputs_alone_are_held():
    """Of 8 microbatches: 5 tensors each (input, 4 outputs of tanh), or 1 each and one graph."""
    (all_of_it, flops), (inputs, more) = held(False), held(True)
    assert 8 * 5 <= all_of_it <= 8 * 5 + 3 and 8 <= inputs <= 8 + 4 + 3
    assert more / flops == pytest.approx(4 / 3, rel=0.1)  # the first layer of all has no input gradient
