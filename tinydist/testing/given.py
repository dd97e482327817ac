"""Hypothesis: an example is drawn before the ranks start, so that all ranks run the same one, each its own copy.

    @given(x=integers())        draw x = 17  ->  launch: ranks 0-3 run the test with 17  ->  draw the next

What the ranks' threads do is outside of Hypothesis's view: it can neither draw there nor explain lines.
"""

import sys
from contextlib import nullcontext

import pytest


def place_of_function(test):
    """(Object, attribute) of what Hypothesis calls with each example; None for a test without ``@given``."""
    handle = getattr(test, "hypothesis", None)
    if handle is None:
        return None
    adapt(getattr(test, "__func__", test))
    return handle, "inner_test"


def adapt(test):
    """Settings for it: the start of processes would exceed a deadline, and a class has an instance for each size."""
    from hypothesis import HealthCheck, Phase, settings

    now = getattr(test, "_hypothesis_internal_use_settings", settings.default)
    test._hypothesis_internal_use_settings = settings(
        now,
        deadline=None,
        phases=[phase for phase in now.phases if phase is not Phase.explain],
        suppress_health_check={*now.suppress_health_check, HealthCheck.differing_executors},
    )


def check_drawn(item, arguments):
    for name, value in arguments.items():
        if type(value).__module__.startswith("hypothesis") and type(value).__name__ == "DataObject":
            pytest.fail(
                f"{item.name}: {name}=data() draws while the test runs, and each rank would draw another example. "
                "Draw before the ranks start: with the arguments of @given, or a strategy made by @composite",
                pytrace=False,
            )


def example_context():
    """A context for a rank's thread: the example that is being run, for assume(), note() and event()."""
    variable = getattr(sys.modules.get("hypothesis.control"), "_current_build_context", None)
    if variable is None or variable.value is None:
        return nullcontext
    example = variable.value
    return lambda: variable.with_value(example)
