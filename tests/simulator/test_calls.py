"""What ranks cost in calls of Python functions and bytes of Python objects stays within its targets."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from benchmarks.calls import COSTS, measured


@pytest.fixture(scope="module")
def process():
    """One of its own: what other tests have imported would be counted too."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize("what", COSTS)
def test_it_costs_no_more_than_its_target(process, what):
    _, most = COSTS[what]
    assert 0 < process.submit(measured, what).result() <= most
