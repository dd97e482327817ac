"""What ranks cost in calls of Python functions and bytes of Python objects stays within its targets."""

import pytest

from benchmarks.calls import COSTS


@pytest.mark.parametrize("what", COSTS)
def test_it_costs_no_more_than_its_target(what):
    measure, most = COSTS[what]
    assert 0 < measure() <= most
