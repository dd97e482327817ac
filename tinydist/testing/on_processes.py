"""One test on processes: its function, and what its fixtures made, travel to workers by pickle.

The test's module is pickled by value. So workers import no test module, and an assert keeps pytest's explanation.
"""

import sys
from contextlib import contextmanager

import cloudpickle
import pytest

from ..processes.pickles import can_travel, culprit
from .mark import MARK
from .on_ranks import call, launch_for_a_test
from .own_copies import bare

kinds = {each.Exception.__name__: each.Exception for each in (pytest.xfail, pytest.fail, pytest.skip, pytest.exit)}
TIMEOUT = 120.0  # seconds, with the start of processes: a deadlock is no report there


def run_on_processes(item, function, arguments, ranks, options):
    """Call ``function`` on each of ``ranks`` processes. Raises one rank's failure."""
    __tracebackhide__ = True
    only_simulated = [name for name in ("fake", "gpus") if options.get(name)]
    if only_simulated:
        pytest.skip(f"{only_simulated[0]}=True: on simulated ranks only")
    sent = Sent(function, [bare(value) for value in arguments[0]], arguments[1])
    with by_value(item):
        sent.check()
        try:
            launch_for_a_test(sent, ranks, **{"timeout": TIMEOUT} | options)
        except Outcome as outcome:
            raise outcome.as_pytest_has_it() from None


class Outcome(Exception):
    """An exception of pytest, which says it is one of Python's own, and so cannot be pickled by its name."""

    def __str__(self):
        return ": ".join(self.args)

    def as_pytest_has_it(self):
        kind, message = self.args
        error = kinds[kind](message)
        error._use_item_location = True  # of a skip: its traceback has no line of the test
        for note in self.__notes__ if kind == "Failed" else ():
            error.add_note(note)
        return error


class Sent:
    """The call that each worker makes."""

    def __init__(self, function, args, kwargs):
        self.__name__ = function.__name__
        self.function, self.args, self.kwargs = function, args, kwargs
        self.patched = [name for name, value in kwargs.items() if isinstance(value, pytest.MonkeyPatch)]
        for name in self.patched:  # what this process has patched, workers have not
            del kwargs[name]

    def __call__(self):
        with pytest.MonkeyPatch.context() as own:
            try:
                call(self.function, self.args, self.kwargs | dict.fromkeys(self.patched, own))
            except tuple(kinds.values()) as error:
                raise Outcome(type(error).__name__, error.msg).with_traceback(error.__traceback__) from None

    def check(self):
        """Name the first part that cannot travel."""
        parts = {f"fixture or parameter {name!r}": value for name, value in self.kwargs.items()}
        parts |= {f"the instance of {type(value).__name__}": value for value in self.args}
        for name, part in parts.items():
            if not can_travel(part):
                self.refuse(f"{name} ({type(part).__name__})")
        if not can_travel(self.function):
            self.refuse(culprit(self.function, ()).removesuffix(","))

    def refuse(self, what):
        where = "Make it inside the test, or run the test on simulated ranks"
        pytest.fail(f"{MARK} on processes: {self.__name__}: {what} cannot be pickled. {where}", pytrace=False)


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
