"""A script that fails: its own lines, the rank, the root cause, and torchrun's exit status, 1."""

import logging
import os
import signal
import sys
import threading

import pytest


def failed(run, name, *words):
    ran = run("--nproc-per-node", 4, *words, "faults.py", name)
    assert ran.status == 1 and ran.out == []
    return ran.err


def test_a_rank_that_raises_is_shown_with_the_lines_of_the_script_alone(run):
    err = failed(run, "fails")
    assert [line for line in err if "File" in line] == [
        f'[rank 1]   File "{os.getcwd()}/faults.py", line {line}, in {name}'
        for line, name in ((67, "<module>"), (28, "fails"), (33, "check"))
    ]
    assert err[-5:] == [
        "[rank 1] [1]",
        "faults.py FAILED",
        "  root cause: rank 1 (local_rank 1, node 0), exit code 1: ValueError: bad values",
        '    at faults.py, line 33, in check: raise ValueError(f"bad values\\n{values}")',
        "  stopped: ranks 0, 2-3",
    ]


def test_the_rank_of_another_node_has_its_local_rank(run):
    err = run("--nproc-per-node", 1, "--nnodes", 2, "faults.py", "fails").err
    assert "  root cause: rank 1 (local_rank 0, node 1), exit code 1: ValueError: bad values" in err


def test_a_deadlock_is_a_report(run):
    err = failed(run, "hang")
    assert err[0].endswith("no rank can run: 1 of 4 ranks wait for calls that can never complete")
    assert err[1] == "  rank 0 waits in all_reduce(float32[2], SUM), call 2 on the world of ranks 0-3"
    assert err[3].startswith("    at faults.py, line 13, in hang: dist.all_reduce(")
    assert err[-2:] == ["faults.py FAILED", "  root cause: DeadlockError, exit code 1"]


def test_a_mismatch_names_both_sides(run):
    err = failed(run, "mismatch")
    assert "[rank 1]   rank 1 calls all_reduce(float32[3], SUM)" in err
    assert "[rank 1]   rank 0 called all_reduce(float32[2], SUM)" in err
    assert len([line for line in err if "File" in line]) == 2


@pytest.mark.parametrize(
    "name, said, cause",
    [
        ("exits", [], "exit code 3: sys.exit(3)"),
        ("says", ["[rank 1] rank 1 has no data"], "exit code 1: sys.exit('rank 1 has no data')"),
        ("kills", [], "exit code 4: sys.exit(4)"),
    ],
)
def test_sys_exit_has_no_traceback(run, name, said, cause):
    err = failed(run, name)
    assert err[: len(said) + 1] == [*said, "faults.py FAILED"] and cause in err[len(said) + 1]


def test_sys_exit_0_is_no_failure(run):
    assert run("--nproc-per-node", 4, "--quiet", "faults.py", "leaves").status == 0


def test_calls_that_were_never_completed_are_told(run):
    ran = run("--nproc-per-node", 4, "faults.py", "forgets")
    assert ran.status == 0 and ran.err[0] == "launch: all ranks have ended, but these calls were never completed:"


def test_wrong_arguments_of_the_script_are_told_once(run):
    ran = run("--nproc-per-node", 4, "ddp.py", "--steps", "many")
    assert ran.status == 1 and len([line for line in ran.err if "invalid int value" in line]) == 1
    assert "exit code 2: sys.exit(2)" in ran.err[-3]


def test_a_cause_is_shown_with_its_lines(run):
    lines = """
        try:
            {}["a"]
        except KeyError as error:
            raise RuntimeError("no a") from error
    """
    ran = run("--nproc-per-node", 2, lines=lines)
    assert "[rank 0] KeyError: 'a'" in ran.err and "[rank 0] RuntimeError: no a" in ran.err
    assert len([line for line in ran.err if "File" in line]) == 2


def test_a_syntax_error_is_shown_as_python_shows_it(run):
    ran = run("--nproc-per-node", 2, lines="x = (1,\n")
    assert ran.status == 1 and "[rank 0] SyntaxError: '(' was never closed" in ran.err


def test_ctrl_c_ends_with_the_line_that_was_running(run):
    lines = """
        import os, signal, torch.distributed as dist
        dist.init_process_group("gloo")
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass
    """
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ran = run("--nproc-per-node", 2, lines=lines)
    assert ran.status == 130 and ran.err[1] == "interrupted" and ran.err[2] == "rank 0 was running"
    assert ran.err[3].startswith("  at script.py, line ")


MESS = """
    import atexit, logging, os, signal, sys
    sys.path.append("/nowhere")
    os.chdir("/")
    logging.basicConfig(level=logging.DEBUG)
    logging.getLogger("mine").setLevel(10)
    signal.signal(signal.SIGTERM, print)
    atexit.register(print, "it ends")
    if sys.argv[1] == "fails":
        raise ValueError
"""


def state():
    loggers = set(logging.Logger.manager.loggerDict)
    root = logging.root.level, list(logging.root.handlers)
    handler = signal.getsignal(signal.SIGTERM)
    return sys.argv, list(sys.path), sys.modules["__main__"], os.getcwd(), loggers, root, handler, threading.enumerate()


@pytest.mark.parametrize("how", ["fails", "returns"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_however_a_script_ends_the_interpreter_is_as_before(run, how, ranks, tmp_path):
    run("--nproc-per-node", ranks, lines=MESS, then=["returns"])  # which has loaded what there is to load
    before = state()
    ran = run("--nproc-per-node", ranks, "--quiet", lines=MESS, then=[how])
    assert state() == before and ran.status == (how == "fails")
    assert len([line for line in ran.out if "it ends" in line]) == (ranks if how == "returns" else 0)
