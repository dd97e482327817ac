"""Fixtures of tests on ranks.

    rank, world_size     of this rank, integers
    group                the default group
    subgroup             the even ranks, or the odd ones: of which this rank is a member
    tmp_path             pytest's own: one folder, which all ranks of the test share
    rank_tmp_path        a folder for each rank, below it
    launch               tinydist.launch, for a test that is an ordinary function and reads the Run

A test has one set of fixtures, made before its ranks start. So the first five are placeholders, and each rank replaces
them by its values.
"""

import os
from functools import partial

import pytest


class OnEachRank:
    """A fixture's value until the ranks run; there, what ``value()`` returns."""

    def __init__(self, name, value):
        self.name, self.value = name, value

    def __repr__(self):
        return "<each rank's own>"


def on_this_rank(arguments):
    return {name: value.value() if isinstance(value, OnEachRank) else value for name, value in arguments.items()}


# Session scope: nothing of them is a test's own, and Hypothesis asks for that.


@pytest.fixture(scope="session")
def rank():
    """This rank's number, from 0."""
    return OnEachRank("rank", rank_here)


@pytest.fixture(scope="session")
def world_size():
    """The number of ranks."""
    return OnEachRank("world_size", ranks_here)


@pytest.fixture(scope="session")
def group():
    """The default process group."""
    return OnEachRank("group", default_group)


@pytest.fixture(scope="session")
def subgroup():
    """The group of all even ranks, or of all odd ones: this rank's number in it is not its number in the world."""
    return OnEachRank("subgroup", every_second_rank)


@pytest.fixture
def rank_tmp_path(tmp_path):
    """A folder of this rank alone, below ``tmp_path``, which all ranks share."""
    return OnEachRank("rank_tmp_path", partial(folder_here, tmp_path))


@pytest.fixture(scope="session")
def launch():
    """tinydist.launch for an ordinary test, which reads the Run. A failure shows the program's lines alone."""
    from .on_ranks import launch_for_a_test

    return launch_for_a_test


def rank_here():
    return int(os.environ["RANK"])


def ranks_here():
    return int(os.environ["WORLD_SIZE"])


def default_group():
    import torch.distributed as dist

    must_be_initialized("group")
    return dist.group.WORLD


def every_second_rank():
    import torch.distributed as dist

    must_be_initialized("subgroup")
    groups = [dist.new_group(range(first, ranks_here(), 2)) for first in range(min(2, ranks_here()))]
    return groups[rank_here() % 2]


def must_be_initialized(name):
    import torch.distributed as dist

    if not dist.is_initialized():
        pytest.fail(f"fixture {name!r}: there is no default group yet, since the test has the mark's init=False")


def folder_here(shared):
    folder = shared / f"rank_{rank_here()}"
    folder.mkdir(exist_ok=True)
    return folder


def requested(item):
    """The fixtures above that ``item`` uses -> the fixtures that ask for them; a project may have others so named."""
    found = item._fixtureinfo.name2fixturedefs
    ours = {name for name, made in found.items() if made[-1].func.__module__ == __name__} - {"launch"}
    return {name: [asker for asker, made in found.items() if name in made[-1].argnames] for name in ours}
