"""Published numbers: what follows from them is what their sources say too."""

from dataclasses import replace
from itertools import pairwise

import pytest

from tinydist.hardware import find_cluster, find_device
from tinydist.hardware.published import (
    ALL_REDUCES,
    BUS_BANDWIDTHS,
    LAYERS,
    MEMORY_BANDWIDTHS,
    RUNS,
    STEP_MEMORIES,
    training_rates,
)

# 6 N D / (GPU hours at the peak), in percent, as computed when the sources were read.
EFFICIENCIES = {
    "BLOOM 176B": 31.8,
    "LLaMA 7B": 43.7,
    "LLaMA 13B": 51.5,
    "LLaMA 33B": 45.9,
    "LLaMA 65B": 47.8,
    "Llama 2 7B": 39.1,
    "Llama 2 70B": 42.8,
    "Llama 3 70B": 27.9,
    "Llama 3.1 405B": 34.6,
    "DeepSeek-V3": 34.6,
}


@pytest.mark.parametrize("name", EFFICIENCIES)
def test_part_of_the_peak(name):
    assert 100 * RUNS[name].efficiency == pytest.approx(EFFICIENCIES[name], abs=0.06)


def test_llama_took_21_days():
    run = RUNS["LLaMA 65B"]
    assert round(run.gpu_hours / run.devices / 24) == 21  # its section 2.4


def test_flops_of_gpt_3_and_llama_are_those_of_the_papers():
    assert RUNS["GPT-3 175B"].flops == pytest.approx(3.14e23, rel=0.005)
    assert RUNS["Llama 3.1 405B"].flops == pytest.approx(3.8e25, rel=0.005)


def test_of_a_mixture_of_experts_each_token_meets_a_part():
    run = RUNS["DeepSeek-V3"]
    assert run.flops == 6 * run.active * run.tokens < 6 * run.parameters * run.tokens / 18


def test_every_run_has_a_source():
    assert all(name == run.name and len(run.source) > 20 for name, run in RUNS.items())


def test_recomputation_runs_forward_twice():
    plain, full = LAYERS["22B"], LAYERS["22B, full recomputation"]
    assert full.backward - plain.backward == pytest.approx(plain.forward, rel=0.02)


def test_a_measured_all_reduce_passes_the_wire_only_if_switches_add():
    assert BUS_BANDWIDTHS["A100"] < 300e9 and BUS_BANDWIDTHS["H200"] < 450e9
    assert BUS_BANDWIDTHS["H200, switches add (SHARP)"] > 450e9


@pytest.mark.parametrize("measured", ALL_REDUCES.values(), ids=ALL_REDUCES)
def test_a_larger_all_reduce_is_hardly_slower_for_each_byte(measured):
    bandwidths = list(measured.values())
    assert all(later > 0.95 * earlier for earlier, later in pairwise(bandwidths))


def test_a_memory_is_no_faster_than_its_sheet():
    for name, measured in MEMORY_BANDWIDTHS.items():
        assert 0.8 * find_device(name).memory_bandwidth < measured < find_device(name).memory_bandwidth


@pytest.mark.parametrize("step", STEP_MEMORIES.values(), ids=STEP_MEMORIES)
def test_steps_held_their_states_and_more(step):
    """Of a parameter 2 bytes of weight and 4 of gradient, and of its states in 32 bits 12, sharded."""
    attention = 2 * step.width**2 * (1 + step.kv_heads / step.heads)
    layer = attention + 3 * step.width * step.intermediate
    parameters = step.layers * layer + 2 * step.vocabulary * step.width
    states = (6 + 12 / step.data_parallel) * parameters / step.tensor_parallel
    assert 0.85 * step.peak < states < 0.93 * step.peak


@pytest.mark.parametrize("name", ["A100 node", "H100 node"])
def test_training_is_slower_than_the_sheets_and_than_a_benchmark(name):
    cluster, rates = find_cluster(name), training_rates(find_cluster(name))
    burst = cluster.device.best_matmul["bfloat16"] / cluster.device.peak_of("bfloat16")
    assert 0.7 < rates["matmul"] < burst < 1 and 0.7 < rates["memory"] < 1 and 0.7 < rates["wire"] < 1
    assert cluster.at(**rates).device.memory_bandwidth == rates["memory"] * cluster.device.memory_bandwidth


def test_training_rates_of_other_devices_were_not_measured():
    with pytest.raises(ValueError, match="V100"):
        training_rates(replace(find_cluster("A100 node"), device=find_device("V100")))
