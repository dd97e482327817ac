"""Published rows agree with what else is said of them."""

from itertools import pairwise

import pytest

from tinydist.hardware.published_tensor_parallel import ASYNC, DEGREES, NETWORK, SEQUENCES_OF_BATCH


@pytest.mark.parametrize("rows", DEGREES.values(), ids=list(DEGREES))
def test_more_gpus_hold_more_sequences_and_are_each_slower(rows):
    assert [row.tensor_parallel for row in rows] == [2, 4, 8, 16, 32]
    for fewer, more in pairwise(rows):
        assert more.sequences > fewer.sequences and more.tokens_per_second < fewer.tokens_per_second


def test_the_tflops_that_nanotron_notes_are_those_of_the_tokens():
    """Of each token 6 FLOPs a parameter and 12 layers tokens width; 363.66 and 92.66 TFLOP/s stand beside the rows."""
    parameters = 28 * (4 * 3072**2 + 3 * 3072 * 8192) + 131_072 * 3072
    flops = 6 * parameters + 12 * 28 * 4096 * 3072
    rows = DEGREES["with sequence parallelism"]
    for row, noted in ((rows[0], 363.66e12), (rows[-1], 92.66e12)):
        assert row.tokens_per_second * flops == pytest.approx(noted, rel=2e-3)


def test_bandwidths_are_in_order():
    assert all(each.low < each.median < each.high for each in NETWORK.values())
    for what in ("all_reduce", "all_gather", "reduce_scatter"):
        medians = [NETWORK[what, nodes].median for nodes in (1, 2, 4)]
        assert medians == sorted(medians, reverse=True)


@pytest.mark.parametrize("model, speed_up", [("Llama 3 70B", 1.09), ("Llama 3 8B", 1.10)])
def test_speed_ups_are_those_of_the_table(model, speed_up):
    assert ASYNC[model].overlapped / ASYNC[model].in_turns == pytest.approx(speed_up, abs=0.005)


@pytest.mark.parametrize("row", SEQUENCES_OF_BATCH)
def test_degrees_multiply_to_the_gpus(row):
    assert row.tensor_parallel * row.pipeline_parallel * row.data_parallel == row.gpus
    assert row.sequences * row.tokens == 2**24  # "16M"
