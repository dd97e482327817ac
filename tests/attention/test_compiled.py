"""The kernels, compiled for GPUs that are not here: what is offered fits, and spills nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed: make kernels")


def printed(*options):
    """In a process of its own: in this one kernels may be interpreted."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tinydist.attention.kernels.compiled", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def compiled(*options):
    return [json.loads(line) for line in printed("--json", *options)]


def assert_fits(rows):
    for row in rows:
        assert row["shared"] <= row["limit"], row
        assert row["dtype"] == "float32" or row["stack"] == 0, row


def test_the_first_choices_fit_and_spill_nothing():
    rows = compiled("--quick")
    found = {(row["architecture"], row["kind"], row["d"]): row for row in rows}
    assert len(found) == len(rows) == 12
    assert_fits(rows)
    # issue slots of 64 x 64 scores, where the tensor cores need 256 cycles; of 412 it was late
    assert found[90, "forward", 64]["slots"][0] < 280
    chapter = (Path(__file__).parents[2] / "notebooks/10b_flash_kernels.ipynb").read_text()
    a100, h100 = found[80, "forward", 128], found[90, "forward", 128]
    assert f"| registers of a thread | {a100['registers']} of 255 | {h100['registers']} of 255 |" in chapter
    assert " | ".join(f"{row['shared']:,} of {row['limit']:,} bytes" for row in (a100, h100)) in chapter


def test_a_reader_gets_a_table():
    header, *rows = printed("--quick")
    assert header.split()[:3] == ["GPU", "kernel", "d"] and len(rows) == 12
    (row,) = (row for row in rows if row.startswith("sm_90   forward   128"))
    assert "128 x 128" in row and "163,872 of 232,448" in row


@pytest.mark.exhaustive
def test_all_that_is_offered_fits_and_spills_nothing():
    rows = compiled()
    assert {row["d"] for row in rows} == {64, 128, 256}
    assert_fits(rows)
