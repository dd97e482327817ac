"""Numbers as they are written."""

import pytest

from tinydist.visuals.formatting import bytes_text, counted, digits, number_text, ranks_text, seconds_text, tell


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


@pytest.mark.parametrize(
    "count, name, text", [(1, "batch", "1 batch"), (0, "batch", "0 batches"), (2, "matrix", "2 matrices")]
)
def test_counted(count, name, text):
    assert counted(count, name) == text


@pytest.mark.parametrize(
    "number, text",
    [(3.0, "3"), (0.5, "0.50"), (1024, "1,024"), (0.0123, "0.012"), (-31.25, "-31.2"), (float("inf"), "inf"), (0, "0")],
)
def test_numbers(number, text):
    assert number_text(number) == text


def test_a_tenth_is_not_rounded_to_nothing():
    assert digits(0.004) == "0.004"


def test_a_line_too_long_for_the_page_ends_between_two_parts(capsys):
    part = "rank 0: parameters 1.50 GB"
    tell("; ".join([part] * 4))
    assert capsys.readouterr().out == f"{part}; {part};\n  {part}; {part}\n"


def test_a_part_too_long_for_the_page_ends_between_two_words(capsys):
    tell(" ".join(["word"] * 20) + "; end")
    assert capsys.readouterr().out == " ".join(["word"] * 15) + "\n  " + " ".join(["word"] * 5) + ";\n  end\n"
