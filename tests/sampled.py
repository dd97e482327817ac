"""Cases of one law: a few every time, the others in `make exhaustive`."""

import pytest


def sampled(few, cases):
    """``cases`` for ``parametrize``; those that are not among ``few`` have the mark."""
    few, cases = list(few), list(cases)
    assert all(each in cases for each in few), "a case is asked for that there is not"
    return [each if each in few else later(each) for each in cases]


def later(case):
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.exhaustive)
