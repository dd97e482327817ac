"""Sequence lengths that grow: numbers of DeepSpeed, what all schedules keep, and batches that are cut."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import tinydist
from tinydist.model import GPT, GPTConfig
from tinydist.training import Batches, Plan, parallelize, train
from tinydist.training.curriculum import CurriculumBatches, fixed_discrete, fixed_linear, fixed_root


@pytest.mark.parametrize(
    "schedule, lengths",
    [
        (fixed_linear(8, 1024, 100), {0: 8, 1: 16, 10: 104, 50: 512, 99: 1008, 100: 1024, 500: 1024}),
        (fixed_root(8, 1024, 100), {0: 8, 1: 104, 10: 328, 25: 512, 50: 720, 99: 1016, 100: 1024}),
        (fixed_linear(10, 100, 37), {37: 96, 38: 96, 39: 100}),  # the most is no multiple: it comes after the last step
        (fixed_discrete([1, 2, 3], [5, 10]), {0: 1, 5: 1, 6: 2, 10: 2, 11: 3, 99: 3}),
    ],
)
def test_difficulties_are_those_that_deepspeed_0_19_8_gave(schedule, lengths):
    assert {step: schedule(step) for step in lengths} == lengths


@given(some.integers(1, 40), some.integers(1, 40), some.integers(1, 60), some.integers(1, 9), some.floats(0.5, 4))
def test_lengths_never_shrink_and_end_at_the_most(least, more, steps, multiple, degree):
    most = (least + more) // multiple * multiple + multiple
    found = [fixed_root(least, most, steps, multiple, degree)(step) for step in range(steps + 2)]
    assert found == sorted(found) and found[-1] == most
    assert all(each % multiple == 0 and each >= least for each in found)


def test_as_many_last_steps_as_changes():
    words = r"^fixed_discrete: difficulties \(2\) must be one more than last_steps \(2\)$"
    with pytest.raises(ValueError, match=words):
        fixed_discrete([1, 2], [5, 10])


@pytest.mark.parametrize(
    "wrong, words",
    [
        (lambda: fixed_root(100, 8, 10), r"^fixed_root: least \(100\) must be <= most \(8\)$"),
        (lambda: fixed_discrete([1, 2, 3], [20, 10]), r"^fixed_discrete: last_steps must increase, got \[20, 10\]$"),
    ],
)
def test_schedules_that_would_go_down(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong()


@pytest.mark.parametrize("length", [0, -3, 2.5])
def test_a_length_is_an_integer_from_1(length):
    """Rows that end before their third last token would be as silent as rows of 3."""
    batches = CurriculumBatches(np.arange(100, dtype=np.uint8), 2, 8, difficulty=lambda step: length)
    with pytest.raises(ValueError, match=rf"difficulty\(step\) must be an integer >= 1, got {length}$"):
        batches[0]


def test_rows_are_cut_after_their_first_tokens():
    tokens = np.arange(100, dtype=np.uint8)
    whole, short = Batches(tokens, 2, 8), CurriculumBatches(tokens, 2, 8, difficulty=lambda step: 4 + 4 * step)
    for step, length in ((0, 4), (1, 8), (2, 8)):  # at most the context
        for cut, row in zip(short[step], whole[step]):
            assert cut.tolist() == row[:, :length].tolist()


@pytest.mark.parametrize("plan", [Plan(), Plan(pp=2, dp=2, microbatches=2)])
def test_the_training_loop_takes_a_curriculum_on_any_mesh(plan):
    """On a pipeline, too, where the middle knows only shapes: the losses of one rank."""

    def losses(plan):
        batches = CurriculumBatches(np.arange(400) % 16, 4, 8, difficulty=fixed_linear(2, 8, 4, multiple=2))
        model = GPT(GPTConfig(vocab_size=16, context=8, layers=2, dim=8, heads=2))
        return train(parallelize(model, plan), batches, 6).losses

    alone = tinydist.launch(losses, 1, Plan(), observe=False).results[0]
    assert tinydist.launch(losses, plan.ranks, plan, observe=False).results[0] == pytest.approx(alone, abs=1e-5)
