"""What starting kernels costs; and gpt-fast's measured rows."""

import pytest
import torch

import tinydist
from benchmarks import decoding
from tinydist.attention import Decoder, DecoderConfig
from tinydist.hardware import DEVICES
from tinydist.serving.execution import EXECUTIONS
from tinydist.tracing.record import Operator


def test_starts_are_those_of_the_kernels():
    graph, eager = EXECUTIONS["CUDA graph"], EXECUTIONS["eager"]
    assert graph.gpu_seconds(2, DEVICES["A100 80GB"]) == pytest.approx(2 * (5 * 3.3e-6 + 9 * 1.34e-6))
    assert graph.gpu_seconds(1, DEVICES["H100"]) == pytest.approx(5 * 3.2e-6 + 9 * 2.18e-6)
    assert graph.gpu_seconds(1, DEVICES["laptop CPU"]) == 0
    assert graph.cpu_seconds(32) == 0 and eager.cpu_seconds(32) == pytest.approx(32 * 55 * 8e-6)


def decode(layers):
    model = Decoder(DecoderConfig(layers=layers, heads=4, kv_heads=4))
    caches = model.caches(1, 8)
    with torch.no_grad():
        model(torch.tensor([[1, 2, 3]]), caches)
        tinydist.mark("decode")
        model(torch.tensor([[1]]), caches)


def test_an_eager_layer_has_as_many_operators_as_the_decoder():
    counted = []
    for layers in (1, 2):
        (program,) = tinydist.launch(decode, 1, layers).record.programs
        names = [getattr(entry, "name", "") for entry in program]
        counted.append(sum(isinstance(entry, Operator) for entry in program[names.index("decode") :]))
    assert counted[1] - counted[0] == EXECUTIONS["eager"].kernels


@pytest.mark.parametrize("model, ranks, published, ours", list(decoding.rows(decoding.GPT_FAST)))
def test_gpt_fast(model, ranks, published, ours):
    """tokens/s; the worst is 16 % too fast."""
    assert ours == pytest.approx(published, rel=0.25)


@pytest.mark.parametrize("model", decoding.GPT_FAST)
def test_more_gpus_decode_faster_as_measured(model):
    ours = [decoding.tokens_per_second(model, ranks) for ranks in decoding.GPT_FAST[model]]
    assert ours == sorted(ours)
    assert sorted(decoding.GPT_FAST[model].values()) == list(decoding.GPT_FAST[model].values())


def test_graphs_are_never_slower_and_eager_programs_wait_for_the_cpu():
    for ranks in (1, 8):
        rates = [decoding.tokens_per_second("Llama 2 7B", ranks, execution=each) for each in EXECUTIONS]
        assert rates == sorted(rates)
    alone, eight = (decoding.tokens_per_second("Llama 2 7B", ranks, execution="eager") for ranks in (1, 8))
    assert alone == eight


def test_the_benchmark_prints_each_row(capsys):
    decoding.main()
    printed = capsys.readouterr().out
    assert "mean 11%, bias +11%, worst +14%" in printed and printed.count("Llama 2 70B") == 3 + 3 + 3
