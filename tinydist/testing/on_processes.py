"""One test on processes: its function, and what its fixtures made, travel to workers by pickle.

The test's module is pickled by value. So workers import no test module, and an assert keeps pytest's explanation.
"""

import sys
from contextlib import contextmanager

import cloudpickle
import pytest

from ..processes.pickles import can_travel
from .fixtures import OnEachRank
from .mark import MARK
from .on_ranks import call, launch_for_a_test
from .own_copies import bare, of_all

TIMEOUT = 120.0  # seconds, with the start of processes: a deadlock is no report there
AFRESH = OnEachRank("monkeypatch", pytest.MonkeyPatch)  # what one process patched, another has not


def run_on_processes(item, function, arguments, ranks, options):
    """Call ``function`` on each of ``ranks`` processes. Raises one rank's failure."""
    __tracebackhide__ = True
    only_simulated = [name for name in ("fake", "gpus") if options.get(name)]
    if only_simulated:
        pytest.skip(f"{only_simulated[0]}=True: on simulated ranks only")
    args, kwargs = [bare(value) for value in arguments[0]], travelling(arguments[1])
    with by_value(item):
        check_travel(item, function, args, kwargs)
        launch_for_a_test(perform, ranks, function, args, kwargs, **{"timeout": TIMEOUT} | options)


def perform(function, args, kwargs):
    own = {name: value.value() for name, value in kwargs.items() if value_is_afresh(value)}
    try:
        call(function, args, kwargs | own)
    finally:
        for patch in own.values():
            patch.undo()


def value_is_afresh(value):
    return isinstance(value, OnEachRank) and value.name == AFRESH.name


def travelling(kwargs):
    return {name: AFRESH if isinstance(value, pytest.MonkeyPatch) else value for name, value in kwargs.items()}


def check_travel(item, function, args, kwargs):
    parts = {f"fixture {name!r}": value for name, value in kwargs.items()}
    parts |= {f"the instance of {type(value).__name__}": value for value in args}
    parts["the test function"] = function
    for name, part in parts.items():
        if (of_all(part) and name != "the test function") or not can_travel(part):
            pytest.fail(
                f"{MARK} on processes: {name} of {item.name} ({type(part).__name__}) cannot be pickled. "
                "Make it inside the test, or run the test on simulated ranks",
                pytrace=False,
            )


@contextmanager
def by_value(item):
    """Pickle by value what is defined beside the test: workers find no module of its name."""
    named = [name for name in sys.modules if name == "conftest" or name.endswith(".conftest")]
    found = {id(module): module for module in (item.module, *map(sys.modules.get, named))}
    registered = [module for module in found.values() if sys.modules.get(module.__name__) is module]
    for module in registered:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)
