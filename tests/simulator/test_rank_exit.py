"""A rank that leaves in another way than by returning says the same in both worlds, and stops nobody but itself."""

import sys
import threading

import cloudpickle
import pytest
import torch.distributed as dist

import tinydist
from tinydist.processes.pool import pool
from tinydist.processes.worker import pack_error


@pytest.fixture(scope="module", autouse=True)
def no_workers_afterwards():
    yield
    pool.stop()


class Demanding(Exception):
    """Cannot be pickled: its constructor wants more than its ``args``, and an attribute cannot travel."""

    def __init__(self, one, two):
        super().__init__(one)
        self.two, self.lock = two, threading.Lock()


class Mute(Exception):
    def __str__(self):
        raise ValueError


def raises(error):
    raise error


ENDS = {
    "sys.exit(3)": (lambda: sys.exit(3), RuntimeError, "rank 1 called sys.exit(3)"),
    "sys.exit('no data')": (lambda: sys.exit("no data"), RuntimeError, "rank 1 called sys.exit('no data')"),
    "KeyboardInterrupt": (lambda: raises(KeyboardInterrupt), RuntimeError, "rank 1 raised KeyboardInterrupt"),
    "GeneratorExit": (lambda: raises(GeneratorExit), RuntimeError, "rank 1 raised GeneratorExit"),
    "cannot be pickled": (lambda: raises(Demanding("one", "two")), Demanding, "one"),
    "__str__ raises": (lambda: raises(Mute("one")), Mute, "one"),
}


def leaving(end):
    return end() if dist.get_rank() == 1 else "returned"


@pytest.mark.parametrize("end", ENDS)
def test_a_rank_that_does_not_return(end):
    leave, kind, said = ENDS[end]
    with pytest.raises(BaseException) as caught:
        tinydist.launch(leaving, 2, leave)
    assert caught.type is kind and caught.value.args == (said,)
    assert caught.value.__notes__ == ["on rank 1 of 2"]
    assert str(caught.traceback[-1].path) == __file__  # where it left

    arrived, _ = cloudpickle.loads(pack_error(caught.value))  # and so it would from a process
    assert type(arrived) is kind and arrived.args == (said,)


def test_a_process_that_does_not_return():
    def end():
        raise KeyboardInterrupt

    with pytest.raises(RuntimeError, match="rank 1 raised KeyboardInterrupt") as caught:
        tinydist.launch(leaving, 2, end, backend="gloo")
    assert "    raise KeyboardInterrupt\n" in caught.value.__notes__[1]


@pytest.mark.parametrize("backend", ["simulated", "gloo"])
@pytest.mark.parametrize("code", [None, 0])
def test_a_rank_that_leaves_with_success_returns_none(code, backend):
    assert tinydist.launch(leaving, 2, lambda: sys.exit(code), backend=backend).results == ["returned", None]
