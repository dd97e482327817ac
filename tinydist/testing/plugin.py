"""The pytest plugin: hooks. torch is loaded when the first test asks for ranks.

collection   read the mark; one item for each size
setup        load torch; refuse fixtures that ask for a rank's value before there are ranks
call         item.obj (with Hypothesis: what each example calls) is replaced by a launch of it
report       what has no line of the test, such as a deadlock, is told without a traceback
"""

import functools
import os
from contextlib import contextmanager
from traceback import format_exception_only

import pytest

from ..launching.options import under_torchrun
from .fixtures import group, launch, rank, rank_tmp_path, requested, subgroup, world_size  # noqa: F401
from .given import check_drawn, place_of_function
from .mark import MARK, SIZE, asked_of

BACKEND = "TINYDIST_BACKEND"
raised = pytest.StashKey[BaseException]()  # what came of a launch


def pytest_addoption(parser):
    options = parser.getgroup("ranks", "tests on ranks (tinydist)")
    options.addoption(
        "--ranks-backend",
        choices=("simulated", "gloo", "nccl"),
        help=f"where ranks run: threads (default), or processes; also ${BACKEND}",
    )
    options.addoption(
        "--simulate-spawn",
        action="store_true",
        help="torch.multiprocessing.spawn and the bases of torch's own tests start simulated ranks",
    )


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "ranks(*sizes, **options): run the test on each of so many ranks; several sizes make several tests. "
        "Options are tinydist.launch's",
    )
    chosen = config.getoption("ranks_backend")
    if chosen:
        patch = pytest.MonkeyPatch()
        patch.setenv(BACKEND, chosen)
        config.add_cleanup(patch.undo)
    if config.getoption("simulate_spawn") and on_processes():
        raise pytest.UsageError(f"--simulate-spawn runs on simulated ranks, and the backend is {os.environ[BACKEND]}")


def pytest_collection_finish(session):
    if session.config.getoption("simulate_spawn"):
        from .spawned import spawns_launch

        replaced = spawns_launch()
        replaced.__enter__()
        session.config.add_cleanup(lambda: replaced.__exit__(None, None, None))


def pytest_generate_tests(metafunc):
    asked, wrong = None, None
    try:
        asked = asked_of(metafunc.definition, metafunc.function)
    except ValueError as error:
        wrong = str(error)
    if wrong:
        pytest.fail(wrong, pytrace=False)
    if asked and len(asked.sizes) > 1:
        metafunc.fixturenames.append(SIZE)
        metafunc.parametrize(SIZE, asked.sizes, ids=[f"ranks{size}" for size in asked.sizes])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Refuse what pytest_generate_tests has not seen: methods of unittest, marks that a conftest.py adds."""
    for item in items:
        try:
            asked = asked_of(item, getattr(item, "function", None))
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None
        if asked and not isinstance(item, pytest.Function):
            raise pytest.UsageError(f"{item.nodeid}: {MARK} is for test functions and methods")
        if asked and len(asked.sizes) > 1 and SIZE not in parameters(item):
            raise pytest.UsageError(
                f"{item.nodeid}: {MARK} has several sizes, {asked.sizes}, which only a function or method can have "
                "that pytest collects with this mark: neither a method of unittest.TestCase, nor an item marked later"
            )


def parameters(item):
    return item.callspec.params if hasattr(item, "callspec") else {}


def pytest_runtest_setup(item):
    marked = item.get_closest_marker("ranks") is not None
    for name, askers in requested(item).items() if isinstance(item, pytest.Function) else ():
        if not marked:
            pytest.fail(f"fixture {name!r} has a value on ranks only: mark the test with {MARK}(4)", pytrace=False)
        for asker in askers:
            pytest.fail(
                f"fixture {asker!r} asks for {name!r}, which has a value on ranks only; fixtures are made once, before "
                "the ranks start. Call a function of it in the test instead",
                pytrace=False,
            )
    if marked:
        from .on_ranks import load

        ranks, _ = asked_by(item)
        if under_torchrun() and ranks != int(os.environ["WORLD_SIZE"]):
            pytest.skip(f"for {ranks} ranks, and this job has {os.environ['WORLD_SIZE']}")
        load(ranks if on_processes() else 0)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    if item.get_closest_marker("ranks") is None:
        return (yield)
    with called_on_ranks(item):
        return (yield)


@contextmanager
def called_on_ranks(item):
    """While ``item`` runs, what it calls is a launch."""
    owner, name = place_of_function(item.obj) or (item, "obj")
    function = getattr(owner, name)

    @functools.wraps(function)
    def on_ranks(*args, **kwargs):
        __tracebackhide__ = True
        run(item, function, args, kwargs)

    setattr(owner, name, on_ranks)
    try:
        yield
    finally:
        setattr(owner, name, function)


def run(item, function, args, kwargs):
    __tracebackhide__ = True
    ranks, options = asked_by(item)
    if getattr(function, "__self__", None) is not None:
        function, args = function.__func__, (function.__self__, *args)
    check_drawn(item, kwargs)
    try:
        if on_processes():
            from .on_processes import run_on_processes

            run_on_processes(item, function, (args, kwargs), ranks, options)
        else:
            from .on_ranks import simulate

            simulate(function, (args, kwargs), ranks, options)
    except BaseException as error:
        item.stash[raised] = error
        raise


def asked_by(item):
    """Its number of ranks, and the options of its launch."""
    asked = asked_of(item, item.function)
    return parameters(item).get(SIZE, asked.sizes[0]), asked.options


def on_processes():
    return os.environ.get(BACKEND, "simulated") != "simulated"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    error = call.excinfo and call.excinfo.value
    if report.failed and error is not None and error is item.stash.get(raised, None) and not in_test(item, call):
        report.longrepr = told(call.excinfo)
    return report


def in_test(item, call):
    """Does the traceback come by the test's own file?"""
    return any(os.fspath(entry.path) == os.fspath(item.path) for entry in call.excinfo.traceback)


def told(excinfo):
    """The exception and its notes, in pytest's form, without a traceback. A process has sent its own, as a note."""
    form, notes = excinfo.getrepr(style="value"), getattr(excinfo.value, "__notes__", [""])
    text = "\n".join(notes) if notes[-1].startswith("Traceback") else "".join(format_exception_only(excinfo.value))
    form.reprtraceback.reprentries[0].lines = text.splitlines()
    return form
