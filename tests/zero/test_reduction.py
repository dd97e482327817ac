"""When gradients are reduced, microbatches without communication, and what goes wrong."""

import pytest
import torch
import torch.distributed as dist
from tiny_training import assert_every_rank_has, tiny_mlp
from zero.ladder import STAGES, Alone, everything, mine, stage_2, train, trained_alone, whole_weights

import tinydist

on_all_stages = pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)


def halves(share, step):
    return list(zip(*(tensor.chunk(2) for tensor in share(step))))


def accumulated(rung, share, quiet):
    """Two microbatches a step, the first of them inside ``quiet()``."""
    for step in range(3):
        (x, y), last = halves(share, step)
        with quiet():
            (torch.nn.functional.mse_loss(rung.module(x), y) / 2).backward()
        (torch.nn.functional.mse_loss(rung.module(last[0]), last[1]) / 2).backward()
        rung.step()
        rung.zero_grad()
    return whole_weights(rung)


@on_all_stages
def test_no_sync_reduces_once_a_step(stage):
    def program():
        zero = stage(tiny_mlp(), torch.optim.SGD, lr=0.2)
        return len(zero.buckets), accumulated(zero, mine, zero.no_sync)

    run = tinydist.launch(program, 2)
    rows, found = zip(*run.results)
    assert sum(event.name == "reduce_scatter" for event in run.trace.of(0)) == 3 * rows[0]
    alone = Alone(tiny_mlp(), torch.optim.SGD, lr=0.2)
    train(alone, everything, steps=3, microbatches=2)
    assert_every_rank_has(whole_weights(alone), found)


@on_all_stages
def test_gradients_are_reduced_while_backward_goes_on(stage):
    """The first reduce-scatter begins before the last matrix product of backward."""

    def program():
        stage(tiny_mlp()).module(torch.ones(4, 8)).sum().backward()

    trace = tinydist.launch(program, 2).trace
    first = next(event for event in trace.of(0) if event.name == "reduce_scatter")
    assert first.start < [event for event in trace.of(0, "compute") if event.name == "mm"][-1].start


def test_ranks_may_use_different_parts():
    """One uses the first layer, the other the last: all are reduced in one order, and nothing hangs."""

    def program():
        zero = stage_2(tiny_mlp(), torch.optim.SGD, lr=1.0)
        before = whole_weights(zero)
        first, last = (zero.module[0], zero.module[4])
        layer, width = (first, 8) if dist.get_rank() == 0 else (last, 16)
        layer(torch.ones(1, width)).sum().backward()
        zero.step()
        after = whole_weights(zero)
        return {name: before[name] - after[name] for name in before}

    for change in tinydist.launch(program, 2).results:
        for name, expected in [("0.bias", 0.5), ("2.bias", 0.0), ("4.bias", 0.5)]:
            torch.testing.assert_close(change[name], torch.full_like(change[name], expected))


@on_all_stages
@pytest.mark.parametrize("when", ["no backward", "no_sync at last"])
def test_a_step_without_gradients(stage, when):
    def program():
        zero = stage(tiny_mlp())
        if when != "no backward":
            zero.module(torch.ones(1, 8)).sum().backward()
            with zero.no_sync():
                zero.module(torch.ones(1, 8)).sum().backward()
        zero.step()

    with pytest.raises(RuntimeError, match=r"gradients are missing.*outside of no_sync"):
        tinydist.launch(program, 2)


@on_all_stages
def test_after_an_error_in_backward_training_goes_on(stage):
    """``zero_grad`` forgets what the backward that failed has left."""

    def program():
        zero = stage(tiny_mlp(), lr=0.01)
        broken = zero.module[0].register_full_backward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            zero.module(torch.ones(1, 8, requires_grad=True)).sum().backward()
        broken.remove()
        zero.zero_grad()
        train(zero, mine)
        return whole_weights(zero)

    assert_every_rank_has(trained_alone(tiny_mlp), tinydist.launch(program, 3).results)
