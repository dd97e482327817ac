"""Mixtral's layers on 64 ranks without data: what a rank holds and sends, by formula."""

import pytest

from benchmarks import mixtral

TOKENS = 4096


@pytest.mark.parametrize("layers", [1, pytest.param(32, marks=pytest.mark.exhaustive)])
def test_bytes_of_a_step(layers):
    run = mixtral.measured(layers, TOKENS)
    memory = run.memory[0]
    assert sum(memory.at("end").values()) == pytest.approx(mixtral.at_rest(layers), rel=2e-3)
    held = layers * mixtral.SIZES.held(2 * TOKENS, 2 * TOKENS, 2)
    after = memory.at("step: forward is over")
    dense = layers * 16 * TOKENS * mixtral.SIZES.dim * 2 + 8 * TOKENS * mixtral.VOCABULARY  # attention, norms; the head
    assert held < after["activations"] + after["communication"] < held + dense
    assert memory.peak < 80e9
    moved = {event.transfer for event in run.trace.of(0) if event.name == "all_to_all" and event.stream != "compute"}
    sent = sum(n for each in moved for (source, to), n in each.nbytes.items() if source == 0 != to)
    rows = 4 * 2 * TOKENS * mixtral.SIZES.dim * 2  # dispatch, combine, and both in backward; k = 2; bf16
    assert sent == layers * (rows + 8 * 8) * 7 // 8


def test_the_parameters_are_those_of_mixtral():
    assert sum(mixtral.parameters(32)) == pytest.approx(46.7e9, rel=1e-3)
