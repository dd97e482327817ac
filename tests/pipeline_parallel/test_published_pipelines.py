"""Published tables: their parts fit together, and what the authors calculated follows from what they profiled."""

import pytest

from tinydist.pipeline_parallel import Costs, analyze, make_schedule
from tinydist.pipeline_parallel.published_pipelines import BLOOM_TRIALS, GPIPE, ZERO_BUBBLE

COLUMNS = [(model, column) for model, setting in ZERO_BUBBLE.items() for column in range(len(setting.microbatches))]


@pytest.mark.parametrize("setting", ZERO_BUBBLE.values(), ids=ZERO_BUBBLE)
def test_each_schedule_has_a_number_for_each_column(setting):
    assert (setting.layers + 2) % setting.ranks == 0
    for each in (*setting.samples.values(), *setting.bubbles.values(), setting.milliseconds):
        assert len(each) == len(setting.microbatches)
    assert setting.samples.keys() == setting.bubbles.keys() == setting.gigabytes.keys()


@pytest.mark.parametrize("model, column", COLUMNS)
def test_the_bubble_of_1f1b_follows_from_the_times(model, column):
    setting = ZERO_BUBBLE[model]
    forward, inputs, weights, message = setting.milliseconds[column]
    M = setting.microbatches[column]
    found = analyze(make_schedule("1F1B", setting.ranks, M), Costs(forward, inputs, weights, message=message))
    span = max(max(ends) - min(starts) for starts, ends in zip(found.start, found.end))
    assert 1 - M * (forward + inputs + weights) / span == pytest.approx(setting.bubbles["1F1B"][column], abs=6e-5)


@pytest.mark.parametrize("model, column", COLUMNS)
def test_nothing_was_measured_that_is_faster_than_calculated(model, column):
    setting = ZERO_BUBBLE[model]
    M, seconds = setting.microbatches[column], sum(setting.milliseconds[column][:3]) / 1e3
    for name, samples in setting.samples.items():
        calculated = seconds / (1 - setting.bubbles[name][column])
        assert setting.microbatch / setting.ranks / samples[column] > calculated, (name, M)


def test_the_others():
    assert all(len(throughputs) == 3 for throughputs in GPIPE.values())
    for (_, stages), trials in BLOOM_TRIALS.items():
        assert trials.ranks == stages and len(trials.seconds) >= 3
        assert all(trials.sequences % size == 0 for size in trials.seconds)
