"""PyTorch's torchfrtrace, run on records of gloo."""

import re
from pathlib import Path

import pytest

from tinydist.diagnose import torchfrtrace

RECORDS = Path(__file__).parents[1] / "flight_records"


def culprits(lines):
    return sorted(re.findall(r"Culprit rank (\d)", "\n".join(lines)))


@pytest.mark.parametrize("first, blamed", [(0, ["1"]), (1, ["0", "2"]), (2, ["1"])])
def test_it_compares_with_the_rank_that_it_reads_first(first, blamed):
    """Of three ranks, rank 1 has reduced five numbers, and the others four."""
    lines = torchfrtrace(RECORDS / "mismatch", first)
    assert "Collective sequence number: 2 has errors" in lines
    assert culprits(lines) == blamed


def test_a_call_too_many_is_not_seen_where_sizes_are_equal():
    lines = torchfrtrace(RECORDS / "metric")
    assert "Not all ranks joining collective, sequence number: 2" in lines and not culprits(lines)
    assert "missing ranks: {1, 2}" in lines
