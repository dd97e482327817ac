"""The loop: what it asks of an engine, and what it says; with one that has no model."""

import io
import math

import numpy as np
import pytest
import torch
import torch.distributed as dist
from training.toy_engine import ToyEngine

from tinydist import launch
from tinydist.training import Batches, train

TOKENS = np.arange(1000, dtype=np.uint16)


def run(ranks=1, steps=6, engine=None, **options):
    """(history, engine) of each rank."""

    def program():
        toy = ToyEngine(**engine or {"dp": ranks})
        return train(toy, Batches(TOKENS, 4, 5), steps, **options), toy

    return launch(program, ranks).results


def test_each_step_has_its_rate_and_the_rows_of_its_data_rank():
    for rank, (history, toy) in enumerate(run(2, rate=lambda step: 10.0 + step)):
        assert history.losses == [1 / (step + 1) for step in range(6)]
        assert toy.rates == [state.rate for state in history] == [10.0 + step for step in range(6)]
        for step, rows in enumerate(toy.rows):
            expected = Batches(TOKENS, 4, 5).rows(step, rank, 2)
            assert all(map(torch.equal, rows, expected))


def test_ranks_of_a_tensor_group_and_of_a_pipeline_have_the_same_rows():
    plan = {"pp": 3, "dp": 2, "tp": 2, "replicate": 2}
    results = run(12, 1, plan)
    for rank, (_, toy) in enumerate(results):
        tokens, targets = toy.rows[0]
        expected = Batches(TOKENS, 4, 5).rows(0, rank // 2 % 2, 2)
        if rank // 4 == 1:  # the stage in the middle is told no more than the shape
            assert tokens.is_meta and tokens.shape == expected[0].shape and targets is None
        else:
            assert torch.equal(tokens, expected[0]) and torch.equal(targets, expected[1])


def test_only_one_rank_of_a_tensor_group_reads(monkeypatch):
    readers, rows = [], Batches.rows
    monkeypatch.setattr(Batches, "rows", lambda *args: readers.append(dist.get_rank()) or rows(*args))
    run(4, 1, {"dp": 2, "tp": 2})
    assert readers == [0, 2]


def test_held_out_windows_are_asked_now_and_then_and_after_the_last_step():
    validation = Batches(TOKENS[:100], 4, 5)  # 19 windows: 4 batches
    ((history, toy),) = run(steps=5, validation=validation, evaluate_every=2)
    assert [state.held_out for state in history] == [None, 2.5, None, 6.5, 10.5]  # means of 1 to 4, 5 to 8, 9 to 12
    assert len(toy.evaluated) == 12
    assert all(torch.equal(tokens, validation[number % 4][0]) for number, tokens in enumerate(toy.evaluated))


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_loss_that_is_no_number_is_an_error_with_the_step_and_the_rank(ranks):
    said = r"^train: the loss of step 2 is nan \(rank 0\), the norm of its gradients 1\.0, the learning rate 0\.5"
    with pytest.raises(FloatingPointError, match=said):
        run(ranks, engine={"nan_at": 2, "dp": ranks}, rate=lambda step: 0.5)


def test_a_step_that_fp16_has_skipped_may_have_any_loss():
    ((history, _),) = run(engine={"skipped": (1, 2)})
    assert [state.applied for state in history] == [True, False, False, True, True, True]
    assert math.isnan(history.losses[1])


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_on_rank_0_says_how_it_goes(monkeypatch):
    monkeypatch.setattr("tinydist.training.loop.peak_flops", lambda precision: 1e6)
    terminal = Terminal()
    results = run(2, flops=1e3, stream=terminal)
    (last,) = terminal.getvalue().splitlines()[-1:]
    said = last.rpartition("\r")[2]
    for words in ("100%", "6/6", "loss=0.1667", "tokens/s=", "MFU=", "peak of the ledger="):
        assert words in said
    state = results[0][0][-1]
    assert state.mfu == pytest.approx(state.tokens_per_second * 1e3 / (2 * 1e6))
    assert state.tokens_per_second == pytest.approx(20 / state.seconds)


def test_no_bar_where_nobody_looks():
    pipe = io.StringIO()
    run(stream=pipe)
    assert pipe.getvalue() == ""


def test_whoever_wants_is_called_after_each_step():
    seen = []
    ((history, _),) = run(on_step=seen.append)
    assert seen == list(history)


def test_an_interrupt_ends_the_bar_and_is_passed_on():
    terminal = Terminal()

    def interrupt(state):
        if state.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(RuntimeError, match="rank 0 raised KeyboardInterrupt"):
        run(on_step=interrupt, stream=terminal)
    assert terminal.getvalue().endswith("\n")
