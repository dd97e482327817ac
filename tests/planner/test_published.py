"""The scores in notebook 13 are what the benchmark computes, and README and docs have the same."""

import csv
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORED = ROOT / "notebooks" / "data" / "13_published.csv"


@pytest.fixture
def published(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("published")


def scores():
    """Of each set, without what controls change."""
    with STORED.open() as file:
        return [row for row in csv.DictReader(file) if not row["changed"]]


def test_the_stored_scores_are_those_that_are_computed(published, monkeypatch, tmp_path):
    monkeypatch.setattr(published, "FILE", tmp_path / "scores.csv")
    published.main(["--write"])
    assert published.FILE.read_text() == STORED.read_text()


@pytest.mark.parametrize("page", ["README.md", "docs/benchmarks.md"])
def test_each_set_has_its_line_in(page):
    lines = (ROOT / page).read_text().splitlines()
    for row in scores():
        memory = [row["memory mean"] or "-", row["memory worst"] or "-"]
        cells = [row["set"], row["rows"], row["mean"], row["bias"], row["worst"], *memory]
        assert f"| {' | '.join(cells)} |" in lines, cells
