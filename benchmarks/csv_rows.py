"""Rows that a benchmark measured, as the CSV that tests and notebooks read; and on what they were measured."""

import csv
import platform
from datetime import date
from importlib.metadata import version
from pathlib import Path


def write(path, rows, names=None):
    """``rows``: dictionaries. ``names``: of the columns; None: those of the first row."""
    with Path(path).open("w", newline="") as file:
        writer = csv.DictWriter(file, names or rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read(path):
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def measured_on(*packages):
    """Columns: versions of packages, the processor, the day."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    versions = " ".join(f"{name} {version(name)}" for name in packages)
    return {"version": versions, "processor": (models or [platform.processor()])[0], "date": date.today().isoformat()}
