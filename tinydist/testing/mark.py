"""``@pytest.mark.ranks``: on how many ranks a test runs, and how.

    @pytest.mark.ranks(4)                        on four ranks
    @pytest.mark.ranks(1, 2, 4)                  three tests, one for each size; a list of sizes is the same
    @pytest.mark.ranks(4, cluster="H100 pod")    with options of launch

The mark that is closest to the test counts, alone: its function's, then its class's, then its module's.
"""

import difflib
import inspect
from typing import NamedTuple

from ..launching.launch import launch
from ..launching.options import RULES, check_room, checked
from ..rules import many, must

MARK = "@pytest.mark.ranks"
DEFAULTS = {name: value for name, value in launch.__kwdefaults__.items() if name != "backend"}
SIZE = "number of ranks"  # the parameter of a test that has several


class Asked(NamedTuple):
    """What a mark asks for."""

    sizes: list
    options: dict


def asked_of(node, function):
    """What the mark of ``node`` asks for; None where it has none. ValueError says what is wrong with it."""
    mark = node.get_closest_marker("ranks")
    if mark is None:
        return None
    try:
        check_function(function)
        return Asked(sizes_of(mark.args), options_of(mark))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{node.nodeid}: {error}") from None


def sizes_of(args):
    sizes = list(args[0]) if len(args) == 1 and many(args[0]) else list(args)
    if not sizes:
        raise ValueError(f"{MARK} needs a number of ranks: {MARK}(4), or several: {MARK}(1, 2, 4)")
    for size in sizes:
        must(MARK, "ranks", RULES["ranks"], size)
    return [int(size) for size in sizes]


def options_of(mark):
    """Validated as launch would, with each size."""
    for name in mark.kwargs.keys() - DEFAULTS.keys():
        raise TypeError(unknown(name))
    for size in sizes_of(mark.args):
        try:
            asked = checked(ranks=size, backend=None, **DEFAULTS | mark.kwargs)
            check_room(asked)
            if asked.cluster:
                asked.cluster.check_ranks(asked.ranks)
        except ValueError as error:
            raise ValueError(f"{MARK}: {str(error).removeprefix('launch: ')}") from None
    return {"observe": False} | mark.kwargs  # recording takes most of the time of a small test


def unknown(name):
    if name == "backend":
        return f"{MARK} has no option 'backend': all tests run on that of `pytest --ranks-backend`"
    close = difflib.get_close_matches(name, DEFAULTS, n=1)
    meant = f" Did you mean {close[0]}?" if close else f" It has launch's: {', '.join(DEFAULTS)}"
    return f"{MARK} has no option {name!r}.{meant}"


def check_function(function):
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{MARK} runs regular functions, and this one is async: write `def`, with asyncio.run(...) in it"
        )
