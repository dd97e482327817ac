"""The paper's Table 1, cell by cell; DeepSpeed's documented samples and formulas."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tinydist.model import GPT, GPTConfig
from tinydist.zero.estimators import (
    Needs,
    count,
    model_states,
    zero2_needs,
    zero3_needs,
)

RANKS = (1, 4, 16, 64, 256, 1024)
TABLE_1 = {  # GB = 1e9 bytes, as printed, for each of RANKS (Rajbhandari et al. 2019, table 1)
    (7.5e9, 1): ("120", "52.5", "35.6", "31.4", "30.4", "30.1"),
    (7.5e9, 2): ("120", "41.3", "21.6", "16.6", "15.4", "15.1"),
    (7.5e9, 3): ("120", "30", "7.5", "1.88", "0.47", "0.12"),
    (128e9, 1): ("2048", "896", "608", "536", "518", "513"),
    (128e9, 2): ("2048", "704", "368", "284", "263", "257"),
    (128e9, 3): ("2048", "512", "128", "32", "8", "2"),
    (1e12, 1): ("16000", "7000", "4750", "4187", "4046", "4011"),
    (1e12, 2): ("16000", "5500", "2875", "2218", "2054", "2013"),
    (1e12, 3): ("16000", "4000", "1000", "250", "62.5", "15.6"),
}


@pytest.mark.parametrize("parameters, stage", TABLE_1, ids=str)
@pytest.mark.parametrize("column", range(6))
def test_the_papers_table_1(parameters, stage, column):
    """Each of the 54 cells is the formula's number, cut or rounded to the digits that are printed."""
    printed, found = TABLE_1[parameters, stage][column], model_states(parameters, stage, RANKS[column]) / 1e9
    unit = 10.0 ** -len(printed.partition(".")[2])
    assert -unit / 2 - 1e-9 <= found - float(printed) < unit
    assert sum(map(len, TABLE_1.values())) == 54


def test_figure_1():
    figures = [model_states(7.5e9, stage, 64) / 1e9 for stage in range(4)]
    assert figures == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)


@pytest.mark.parametrize("stage, ranks", [(4, 1), (-1, 1), (1, 0)])
def test_no_such_stage(stage, ranks):
    with pytest.raises(ValueError, match=f"got stage {stage} and {ranks} ranks"):
        model_states(1, stage, ranks)


def in_gib(needs):
    return tuple(round(nbytes / 2**30, 2) for nbytes in needs)


P, LARGEST = 2851_000_000, 32_000_000  # t5-3b on a node of 8 devices, the sample of DeepSpeed's documentation


@pytest.mark.parametrize(
    "offload, expected",
    # The documentation still shows 15.93 for the second, of a former formula (4 + 16/N); its code says 11.28.
    [(True, (127.45, 5.31)), (False, (127.45, 11.28))],
)
def test_deepspeeds_samples_for_stage_2(offload, expected):
    assert in_gib(zero2_needs(P, 8, 1, offload)) == expected


@pytest.mark.parametrize(
    "optimizer, parameters, start, expected",
    [
        (True, True, True, (71.69, 0.12)),
        (True, True, False, (127.45, 0.12)),
        (True, False, True, (63.72, 0.78)),
        (True, False, False, (127.45, 0.78)),
        (False, False, True, (1.43, 6.09)),
        (False, False, False, (127.45, 6.09)),
    ],
)
def test_deepspeeds_samples_for_stage_3(optimizer, parameters, start, expected):
    assert in_gib(zero3_needs(P, LARGEST, 8, 1, optimizer, parameters, start)) == expected


sizes = st.integers(1, 10**12), st.integers(1, 16), st.integers(1, 64)


@given(*sizes)
def test_deepspeeds_formulas_for_stage_2(p, n, nodes):
    assert zero2_needs(p, n, nodes) == Needs(int(p * max(4 * n * nodes, 16) * 1.5), 2 * p)
    assert zero2_needs(p, n, nodes, False) == Needs(int(p * 4 * n * 1.5), 2 * p + int(18 * p / (n * nodes)))


@given(*sizes, st.integers(1, 10**9))
def test_deepspeeds_formulas_for_stage_3(p, n, nodes, largest):
    whole = {"sharded_start": False}
    device = [4 * largest, 4 * largest + int(2 * p / (n * nodes)), 4 * largest + int(18 * p / (n * nodes))]
    choices = [{}, {"offload_parameters": False}, {"offload_parameters": False, "offload_optimizer": False}]
    needs = [
        (zero3_needs(p, largest, n, nodes, **each), zero3_needs(p, largest, n, nodes, **each, **whole))
        for each in choices
    ]
    assert [(sharded.device, begins.device) for sharded, begins in needs] == [(each, each) for each in device]
    hosts = [p * (18 / nodes), p * (16 / nodes), largest * 4 * n]
    begins = [p * max(4 * n, 18 / nodes), p * max(4 * n, 16 / nodes), p * 4 * n]
    assert [sharded.host for sharded, _ in needs] == pytest.approx(
        [int(1.5 * each) for each in hosts], abs=1, rel=1e-12
    )
    assert [each.host for _, each in needs] == pytest.approx([int(1.5 * each) for each in begins], abs=1, rel=1e-12)


def test_parameters_alone_are_not_offloaded():
    with pytest.raises(ValueError, match="only together with the optimizer's states"):
        zero3_needs(1, 1, offload_optimizer=False)


def test_counts():
    config = GPTConfig(vocab_size=100, context=8, layers=2, heads=2, dim=16)
    model = GPT(config)
    assert count(model) == (sum(p.numel() for p in model.parameters()), 100 * 16)
    assert count(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2, bias=False))) == (24, 16)
    with torch.device("meta"):
        assert count(nn.Linear(10**5, 10**5))[1] == 10**10 + 10**5
