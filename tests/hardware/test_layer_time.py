"""A published layer time, predicted: each factor that is counted comes nearer, and none passes it."""

import runpy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tinydist.hardware.published import LAYERS

MODEL = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "layer_time.py"))
NODE, LAYER = MODEL["NODE"], MODEL["LAYER"]


def test_each_factor_comes_nearer_to_what_was_published():
    seconds = [seconds for _, seconds in MODEL["path"]()]
    assert all(a < b for a, b in pairwise([*seconds, LAYER.forward]))
    assert seconds[0] < 0.65 * LAYER.forward and seconds[-1] > 0.86 * LAYER.forward


def test_products_have_the_flops_of_the_formula():
    """24 B T D^2 + 4 B T^2 D of a layer, dealt out (Korthikanti et al. 2022, appendix A)."""
    B, T, D = LAYER.microbatch, LAYER.tokens, LAYER.width
    program = MODEL["run"](memory_bound=False).record.programs[0]
    flops = sum(entry.flops for entry in program if getattr(entry, "name", "") in ("mm", "bmm"))
    assert flops == (24 * B * T * D**2 + 4 * B * T**2 * D) / LAYER.tensor_parallel


def test_operators_between_the_products_are_what_sequence_parallelism_deals_out():
    """7 of 8 parts of them are what the published layer saves by it: 0.5 ms, to one digit."""
    events = MODEL["run"](memory_bound=True).trace.of(0, "compute")
    dealt_out = sum(event.end - event.start for event in events if event.name in ("add", "native_layer_norm"))
    published = LAYER.forward - LAYERS["22B, sequence parallel"].forward
    assert dealt_out * 7 / 8 == pytest.approx(published, abs=0.1e-3)


def test_launches_are_hidden():
    """Were each to wait for its launch, the layer would take 5 us longer for each operator but the first."""
    run = MODEL["run"](memory_bound=True)
    adding = replace(NODE, device=replace(NODE.device, runs_ahead=False))
    operators = sum(event.name != "wait" for event in run.trace.of(0, "compute"))
    assert run.on(adding).seconds - run.seconds == pytest.approx((operators - 1) * 5e-6, rel=1e-6)
