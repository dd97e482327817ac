"""In a real kernel: the stop button, prints of ranks, and reports that name the cell."""

import re
import textwrap

import pytest
from real_kernel import Kernel

SETUP = """
import os, sys, threading, time
import torch, torch.distributed as dist
import tinydist

def sum_of_ranks():
    x = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(x)
    return x.item()

def check():
    assert tinydist.launch(sum_of_ranks, 4).results == [6.0] * 4
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("rank ")] == []
    assert "RANK" not in os.environ and not dist.is_initialized()
    print("all well")
"""


@pytest.fixture(scope="module")
def kernel():
    kernel = Kernel()
    try:
        assert kernel.run(SETUP) == ("", "", None)
        yield kernel
    finally:
        kernel.stop()


@pytest.fixture(autouse=True)
def the_next_launch_works(kernel):
    yield
    assert kernel.run("check()") == ("all well\n", "", None)


# What ranks are doing when the reader presses stop.

STOPPED = {
    "in a loop": """
        def program():
            if dist.get_rank() == 1:
                print("begun")
                while True:
                    pass
            dist.barrier()
        """,
    "in a loop that swallows exceptions": """
        def program():
            if dist.get_rank() == 1:
                print("begun")
                while True:
                    try:
                        time.perf_counter()
                    except Exception:
                        pass
            dist.barrier()
        """,
    "asleep": """
        def program():
            if dist.get_rank() == 1:
                print("begun")
                while True:
                    time.sleep(0.1)
            dist.barrier()
        """,
    "in an operator": """
        def program():
            x = torch.ones(300, 300)
            if dist.get_rank() == 1:
                print("begun")
                while True:
                    x @ x
            dist.barrier()
        """,
    "in backward": """
        def program():
            w = torch.ones(2, requires_grad=True)

            def average(w):
                if dist.get_rank() == 1:
                    print("begun")
                    while True:
                        pass
                dist.all_reduce(w.grad)

            w.register_post_accumulate_grad_hook(average)
            w.sum().backward()
        """,
    "in communication": """
        def program():
            x = torch.ones(2)
            if dist.get_rank() == 0:
                print("begun")
            while True:
                dist.all_reduce(x)
        """,
    "in its cleaning up": """
        def program():
            try:
                if dist.get_rank() == 1:
                    print("begun")
                    while True:
                        pass
                dist.barrier()
            finally:
                dist.barrier()
        """,
}


def plain(error):
    return re.sub(r"\x1b\[[\d;]*m", "", "\n".join(error["traceback"]))


@pytest.mark.parametrize("where", STOPPED)
def test_stop(kernel, where):
    code = textwrap.dedent(STOPPED[where]) + "\ntinydist.launch(program, 4)"
    out, err, error = kernel.run(code, interrupt_at="begun")
    assert error["ename"] == "KeyboardInterrupt"
    assert re.search(r"rank \d was running\n  at Cell In\s?\[\d+\], line \d+, in ", plain(error))
    assert re.fullmatch(r"\[rank [01]\] begun\n", out) and err == ""


def test_stop_before_the_first_line(kernel):
    """While the ranks start: the button may hit anywhere."""
    code = """
        print("begun")
        for _ in range(100_000):
            tinydist.launch(sum_of_ranks, 64)
        """
    for _ in range(5):
        out, err, error = kernel.run(code, interrupt_at="begun")
        assert (out, error["ename"]) == ("begun\n", "KeyboardInterrupt")
        assert err == ""


# What the reader sees of ranks.

TALK = """
def program():
    for step in range(3):
        print("step", step, end=" ")
        sys.stdout.flush()
        dist.barrier()
        print("of rank", dist.get_rank())
    print("a warning", file=sys.stderr)

tinydist.launch(program, 4)
None
"""


def test_prints_come_whole_and_in_order(kernel):
    runs = [kernel.run(TALK) for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]
    out, err, error = runs[0]
    assert sorted(out.splitlines()) == sorted(
        f"[rank {rank}] step {step} of rank {rank}" for rank in range(4) for step in range(3)
    )
    assert sorted(err.splitlines()) == [f"[rank {rank}] a warning" for rank in range(4)]
    assert error is None


def test_a_report_names_the_cell_and_its_line(kernel):
    _, _, error = kernel.run("""\
        def forgets():
            if dist.get_rank() != 2:
                dist.barrier()

        tinydist.launch(forgets, 4)
        """)
    assert error["ename"] == "DeadlockError"
    assert "missing: rank 2" in error["evalue"]
    assert re.search(r"at Cell In\s?\[\d+\], line 3, in forgets: dist.barrier\(\)", error["evalue"])
    assert "".join(error["traceback"]).count("scheduler.py") == 0


def test_an_exception_shows_the_cell_and_no_machinery(kernel):
    _, _, error = kernel.run("""\
        def fails():
            dist.barrier()
            return 1 / (dist.get_rank() - 1)

        tinydist.launch(fails, 4)
        """)
    text = plain(error)
    assert error["ename"] == "ZeroDivisionError"
    assert "return 1 / (dist.get_rank() - 1)" in text and "on rank 1 of 4" in text
    assert "scheduler.py" not in text and "simulation.py" not in text
