"""The kernels of one block that notebook 20 shows: the stored rows of this library are those that it makes."""

from benchmarks import csv_rows
from benchmarks.block_kernels import FILE, SYSTEMS, ours


def test_ours_are_those_of_the_table():
    stored = [each for each in csv_rows.read(FILE) if each["system"] == "tinydist"]
    assert [(each["kernel"], each["reads"].split(), each["writes"].split()) for each in stored] == list(ours())


def test_every_system_reads_and_writes():
    rows = csv_rows.read(FILE)
    assert {each["system"] for each in rows} == SYSTEMS.keys()
    assert all(each["reads"] and each["writes"] for each in rows)
