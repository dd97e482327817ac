"""PyTorch's torchfrtrace, run on records of gloo."""

import re
from pathlib import Path

import pytest

from tinydist.diagnose import first_report, torchfrtrace

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


def test_the_first_report_is_short_and_in_one_order():
    assert first_report(RECORDS / "mismatch", 1) == [
        "Collective sequence number: 2 has errors",
        "internal record id: 2",
        "group info: 0:default_pg",
        "collective: gloo:all_reduce",
        "input sizes: [[5]]",
        "output sizes: [[5]]",
        "world size: 3",
        "expected ranks: {0, 1, 2}",
        "collective state: scheduled",
        "error msg:",
        *(
            f"Culprit rank {rank}; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: '[[5]]' does not match "
            "found input sizes: '[[4]]'"
            for rank in (0, 2)
        ),
        "collective stack trace:",
        *first_report(RECORDS / "mismatch", 1)[-2:],
    ]


def test_of_the_stack_the_programs_lines_are_left():
    report = first_report(RECORDS / "metric")
    stack = report[report.index("collective stack trace:") + 1 :]
    assert all(re.fullmatch(r"\w+ at flight_records.py:\d+", line) for line in stack) and stack
