"""Numbers as they are written."""

import pytest

from tinydist.visuals.words import bytes_text, ranks_text, seconds_text


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "0 s"),
        (3.123e-3, "3.12 ms"),
        (31.23e-6, "31.2 us"),
        (0.9996e-3, "1.00 ms"),
        (5e-9, "5.00 ns"),
        (312, "312 s"),
    ],
)
def test_seconds(seconds, text):
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    "nbytes, text", [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (12_345_678, "12.3 MB"), (2e12, "2.00 TB")]
)
def test_bytes(nbytes, text):
    assert bytes_text(nbytes) == text


def test_ranks():
    assert (ranks_text(1), ranks_text(4)) == ("1 rank", "4 ranks")
