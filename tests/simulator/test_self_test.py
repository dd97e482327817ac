"""Before the first launch: a torch that does not suit is named, with what to install; a newer one is warned of once."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import tinydist
from tinydist import torch_versions
from tinydist.simulator.process_group import SimulatedProcessGroup
from tinydist.simulator.self_test import before_first_launch, self_test

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nothing_was_launched():
    before_first_launch.cache_clear()
    yield
    before_first_launch.cache_clear()


def messages_of_launches(count):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(count):
            tinydist.launch(dist.get_rank, 2)
    return [str(warning.message) for warning in caught]


def test_this_torch_suits():
    self_test()
    assert messages_of_launches(1) == []


def test_a_newer_torch_is_warned_of_once(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.99.0+cpu")
    tested = f"tinydist is tested with torch {torch_versions.OLDEST} to {torch_versions.NEWEST}"
    assert messages_of_launches(2) == [f"torch 2.99.0+cpu is newer than the tested versions: {tested}"]


@pytest.mark.parametrize(
    "version, too_old, untested",
    [("2.9.1", True, False), ("2.12.0", False, False), ("2.15.3+cu132", False, False), ("2.16.0a0", False, True)],
)
def test_versions_are_compared_as_numbers(version, too_old, untested):
    assert (torch_versions.too_old(version), torch_versions.untested(version)) == (too_old, untested)


def refuse(*_, **__):
    raise TypeError("got an unexpected keyword argument 'newer'")


class Silent:
    def wait(self):
        pass


BREAKS = {
    "a collective fails": ("allreduce", refuse, "TypeError: got an unexpected keyword argument 'newer'"),
    "a message fails": ("send", refuse, "TypeError: got an unexpected keyword argument 'newer'"),
    "a collective does nothing": ("allreduce", lambda *_: Silent(), r"are \[\(1, 1\), \(2, 0\)\], not \[\(3, 1\), "),
}


@pytest.mark.parametrize("method, instead, how", BREAKS.values(), ids=BREAKS)
def test_a_torch_that_does_not_suit_is_named_with_what_to_install(monkeypatch, method, instead, how):
    monkeypatch.setattr(SimulatedProcessGroup, method, instead)
    for _ in range(2):  # and again, until it is mended
        with pytest.raises(
            RuntimeError, match=rf"not work with torch {torch.__version__.replace('+', '.')} .*{how}"
        ) as e:
            tinydist.launch(dist.get_rank, 2)
        assert str(e.value).endswith("install one of those, for example with `pip install torch==2.13.0`")


def test_a_group_that_cannot_be_made(monkeypatch):
    monkeypatch.setattr(dist, "new_group", refuse)
    with pytest.raises(RuntimeError, match="unexpected keyword argument 'newer'"):
        tinydist.launch(dist.get_rank, 2)


def test_the_doctor_starts_where_a_name_is_missing():
    program = (
        "import runpy, sys\n"
        "import torch.distributed.distributed_c10d as c10d\n"
        "del c10d._World\n"
        "import tinydist\n"
        "try: tinydist.launch(print, 2)\n"
        "except ImportError as error: print(error)\n"
        "sys.argv = ['tinydist', 'doctor']\n"
        "runpy.run_module('tinydist', run_name='__main__')\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, cwd=ROOT)
    needs = f"simulated ranks need names of torch that torch {torch.__version__} does not have: _World. "
    lines = run.stdout.splitlines()
    assert lines[0] == f"{needs}{torch_versions.INSTALL}", run.stderr
    assert lines[3].startswith(f"missing  simulator   {needs}{torch_versions.INSTALL}")
    assert run.returncode == 1
