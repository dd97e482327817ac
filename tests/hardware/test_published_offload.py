"""Published figures of inputs on the host: what can be counted is counted again."""

from math import isclose

from tinydist.hardware.published_offload import FREED, LONG_STEP, STEPS


def test_what_is_freed_is_the_layers_inputs_in_16_bits():
    for row in FREED:
        assert row.nbytes == 2 * row.layers * row.width * row.tokens


def test_steps_get_longer_and_the_long_one_hardly():
    assert STEPS.kept < STEPS.recomputed < STEPS.offloaded
    inputs = 2 * LONG_STEP.layers * LONG_STEP.width * LONG_STEP.tokens
    assert isclose(LONG_STEP.inputs, inputs, rel_tol=0.01)
    assert 0.9 * inputs < LONG_STEP.peak - LONG_STEP.peak_offloaded < inputs
    assert LONG_STEP.longer < STEPS.offloaded / STEPS.recomputed - 1
    assert 0.9 * STEPS.inputs < STEPS.freed < STEPS.inputs < STEPS.peak
