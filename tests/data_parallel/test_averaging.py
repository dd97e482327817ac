"""Gradients averaged after backward, one by one and all at once."""

import pytest
from data_parallel.awkward_model import Awkward, train, train_alone
from tiny_training import assert_every_rank_has
from unobserved import launch

import tinydist
from tinydist.data_parallel import average_each, average_flat


@pytest.mark.parametrize("average", [average_each, average_flat])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("unused", [False, True])
def test_weights_equal_one_process(average, ranks, unused):
    run = launch(lambda: train(Awkward(unused), average), ranks)
    assert_every_rank_has(train_alone(unused), run.results)


@pytest.mark.parametrize("average, calls", [(average_each, 4), (average_flat, 1)])
def test_bytes_and_calls(average, calls):
    """Both send 2(p-1)/p of the gradients; the first does so in pieces."""
    run = tinydist.launch(lambda: train(Awkward(), average, steps=1), 4)
    nbytes = sum(p.nbytes for p in Awkward().parameters() if p.requires_grad)
    assert [round(sum(row)) for row in run.traffic] == [2 * 3 * nbytes // 4] * 4
    assert sum(event.name == "all_reduce" for event in run.trace.of(0)) == calls
