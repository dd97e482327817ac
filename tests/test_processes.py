"""Real ranks: what they return and print, and that no failure of one leaves anything running or hanging."""

import csv
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from contextlib import suppress
from pathlib import Path

import numpy
import psutil
import pytest
import torch
import torch.distributed as dist
from clock_by_hand import GUARD
from jupyter_client.manager import start_new_kernel
from real_kernel import Kernel

from tinydist import processes
from tinydist.diagnose import read
from tinydist.processes import WorkerDied, call, run
from tinydist.processes.call import LOOPBACK
from tinydist.processes.flight_recorder import records_of, save_record
from tinydist.processes.pool import pool


@pytest.fixture(scope="module", autouse=True)
def no_workers_afterwards():
    yield
    pool.stop()


def pids():
    return [worker.pid for worker in pool.workers]


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def rank_on_all(ranks=2):
    """What a call returns when all is well."""
    return run(lambda: dist.get_rank(), ranks)


# What comes back


def test_the_flight_recorder_knows_from_which_line_each_rank_called(tmp_path):
    def one_call_too_many():
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1))
        dist.all_reduce(torch.ones(1))

    def recorded():
        dist.init_process_group("gloo")
        with suppress(RuntimeError):  # rank 0 waits in vain: the other has gone
            one_call_too_many()
        save_record(tmp_path, dist.get_rank())
        dist.destroy_process_group()

    run(recorded, 2, init=False)
    first = one_call_too_many.__code__.co_firstlineno
    lines = [
        [call.line for call in read(tmp_path / f"rank_{rank}")[0] if call.line.startswith(__file__)]
        for rank in range(2)  # a worker's record also has what it called for other tests
    ]
    too_many, right = (f"{__file__}:{first + more} in one_call_too_many" for more in (2, 3))
    assert lines == [[too_many, right], [right]]


def test_records_of_a_program_that_hangs(capfd):
    def metric(numbers):
        if dist.get_rank() == 0:
            print("rank 0 logs")
            dist.all_reduce(torch.ones(numbers))
        dist.all_reduce(torch.ones(numbers))

    folder = records_of(metric, 2, 3, seconds=1)
    calls = [read(folder / f"rank_{rank}")[0] for rank in range(2)]
    assert [len(own) for own in calls] == [2, 1]
    assert calls[1][0].tensors == "[3] Float"
    assert "rank 0 logs" not in capfd.readouterr().out


def test_records_in_a_notebook_leave_no_traceback_of_the_progress_message():
    """It appears after a second, from a thread, which flushes stdout."""
    kernel = Kernel()
    try:
        assert kernel.run("import os; os.environ.pop('TINYDIST_QUIET', None)")[2] is None
        out, said, error = kernel.run(
            """
            import time
            from tinydist.processes.flight_recorder import records_of

            def slow():
                print("it logs")
                time.sleep(2)

            folder = records_of(slow, 1)
            """
        )
    finally:
        kernel.stop()
    assert (out, error) == ("", None) and "Exception in thread" not in said, said


def test_in_a_hang_on_a_mesh_the_rank_that_is_ahead_in_one_group_is_behind_in_another(monkeypatch):
    notebooks = Path(__file__).parents[1] / "notebooks"
    monkeypatch.syspath_prepend(str(notebooks))
    from hang.mesh import train_on_a_mesh

    folder = records_of(train_on_a_mesh, 4, seconds=2)
    groups = ("mesh_tp", "mesh_dp", "default_pg")
    counted = []
    for rank in range(4):
        calls, _ = read(folder / f"rank_{rank}")
        counted.append([sum(call.group == group for call in calls) for group in groups])
    assert counted == [[2, 2, 2], [2, 2, 2], [2, 2, 2], [2, 3, 1]]


def test_what_py_spy_saw_of_the_hang_of_notebook_01b_is_in_its_program():
    notebooks = Path(__file__).parents[1] / "notebooks"
    program = (notebooks / "hang" / "train.py").read_text().splitlines()
    with open(notebooks / "data" / "01b_py_spy.csv") as file:
        rows = list(csv.DictReader(file))
    seen = {0: [], 1: [], 2: [], 3: []}
    for row in rows:
        if place := re.search(r"(\w+) \(train.py:(\d+)\)", row["line"]):
            seen[int(row["rank"])].append((place[1], program[int(place[2]) - 1].strip()))
    assert seen[0][0] == ("train", "dist.all_reduce(gradient)")
    assert seen[1][0] == seen[2][0] == seen[3][0] == ("checkpoint", "time.sleep(0.1)")


def test_ranks_communicate():
    start = 10  # a function of a notebook finds the variables around it

    def add_up(step):
        total = torch.tensor([start + step * dist.get_rank()])
        dist.all_reduce(total)
        return dist.get_backend(), dist.get_world_size(), total

    assert run(add_up, 2, (5,)) == [("gloo", 2, torch.tensor([25]))] * 2


def test_results_by_rank():
    assert run(lambda: dist.get_rank() * 10, 2) == [0, 10]
    assert rank_on_all(3) == [0, 1, 2]
    assert rank_on_all(1) == [0]


def test_tensors_are_copied_and_stay_the_same_tensor():
    weight = torch.ones(2, requires_grad=True)

    def step(first, second):
        (first * 3).sum().backward()
        return second.grad, first * 2

    for grad, product in run(step, 2, (weight, weight)):
        assert grad.tolist() == [3.0, 3.0]
        assert product.tolist() == [2.0, 2.0]
    assert weight.grad is None


def test_large_results():
    for result in run(lambda ones: ones * dist.get_rank(), 2, (torch.ones(1 << 21),)):
        assert result.shape == (1 << 21,)


def test_group_is_the_programs_own():
    def join():
        assert not dist.is_initialized()
        dist.init_process_group("gloo")
        total = torch.ones(1)
        dist.all_reduce(total)
        return total.item(), os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["LOCAL_RANK"]

    expected = [(2.0, "0", "2", "0"), (2.0, "1", "2", "1")]
    assert run(join, 2, init=False) == expected
    assert run(join, 2, init=False) == expected  # the first call left no group behind


def test_the_user_chooses_the_interface(monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)

    def chosen():
        return os.environ.get("GLOO_SOCKET_IFNAME")

    assert run(chosen, 1) == [LOOPBACK.get(sys.platform)]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "other")
    assert run(chosen, 1, init=False) == ["other"]


@pytest.mark.skipif(sys.platform not in LOOPBACK, reason="gloo chooses its interface itself")
@pytest.mark.parametrize("init", [True, False])
def test_only_this_machine_can_reach_the_ranks(init):
    def listening(pid):
        return {at.laddr for at in psutil.Process(pid).net_connections("tcp") if at.status == psutil.CONN_LISTEN}

    def addresses(kernel):
        if not init:
            dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(1), group=dist.new_group([0, 1]))
        port = int(os.environ["MASTER_PORT"])
        return {at.ip for at in listening(os.getpid())}, {at.ip for at in listening(kernel) if at.port == port}

    store = set() if init else {"127.0.0.1"}
    assert run(addresses, 2, (os.getpid(),), init=init) == [({"127.0.0.1"}, store)] * 2


# What is printed


def test_prints_come_rank_by_rank(capfd):
    def talk():
        print("one\ntwo")
        os.write(1, b"native\n")  # as C code prints
        print("to stderr", file=sys.stderr)
        dist.barrier()
        print("no end", end="")

    run(talk, 2)
    printed = capfd.readouterr()
    assert printed.out.splitlines() == [
        f"[rank {rank}] {line}" for rank in range(2) for line in ("one", "two", "no end")
    ]
    for rank in range(2):
        assert f"[rank {rank}] to stderr" in printed.err.splitlines()


def test_prints_before_a_failure(capsys):
    def fail():
        print("so far")
        raise ValueError

    with pytest.raises(ValueError):
        run(fail, 1)
    assert capsys.readouterr().out == "[rank 0] so far\n"


# Warm workers


def test_workers_are_kept():
    first = run(os.getpid, 2)
    assert run(os.getpid, 2) == first
    assert run(os.getpid, 3)[:2] == first
    assert run(os.getpid, 2) == first


def test_nothing_leaks_into_the_next_call(tmp_path):
    def look():
        warnings.warn("once a call", stacklevel=1)
        draws = torch.rand(1).item(), random.random(), numpy.random.rand()
        modes = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()
        modes += torch.are_deterministic_algorithms_enabled(), torch.get_default_device()
        return draws, modes, os.getcwd(), os.environ.get("LEAK"), list(sys.path), dist.get_backend()

    def leak(folder):
        dist.barrier()  # else the other may still be connecting when this one destroys the group
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)
        torch.set_num_threads(2)
        torch.use_deterministic_algorithms(True)
        os.chdir(folder)
        os.environ["LEAK"] = "1"
        sys.path.append(folder)
        warnings.simplefilter("ignore")
        sys.stdout = sys.stderr = None
        dist.destroy_process_group()

    pool.stop()
    fresh = run(look, 2)
    run(leak, 2, (str(tmp_path),))
    assert run(look, 2) == fresh


def test_what_libraries_remember_of_their_rank_is_forgotten():
    def who():
        from accelerate import PartialState

        state = PartialState(cpu=True)
        return state.process_index, state.num_processes, dist.get_rank()

    for _ in range(2):
        assert run(who, 2, init=False) == [(0, 2, 0), (1, 2, 1)]


def test_the_excepthook_is_not_wrapped_once_more_in_each_call():
    def times():
        hook, count = sys.excepthook, 0
        while closure := getattr(hook, "__closure__", None):
            hook, count = next(cell.cell_contents for cell in closure if callable(cell.cell_contents)), count + 1
        return count

    pool.stop()
    assert [run(times, 1) for _ in range(3)] == [[1]] * 3


def test_a_warning_is_shown_in_each_call(capsys):
    def warn():
        warnings.warn("look out", stacklevel=1)

    for _ in range(2):
        run(warn, 1)
        assert "[rank 0]" in (shown := capsys.readouterr().err) and "look out" in shown


def test_workers_are_where_the_kernel_is(monkeypatch, tmp_path):
    rank_on_all()
    (tmp_path / "beside_the_notebook.py").write_text("answer = 42\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    monkeypatch.setenv("CHOSEN", "yes")

    def look():
        import beside_the_notebook

        return beside_the_notebook.answer, os.environ["CHOSEN"]

    assert run(look, 2) == [(42, "yes")] * 2


def test_seed():
    def draw():
        return torch.rand(1).item(), random.random()

    torch.manual_seed(7)
    random.seed(7)
    assert run(draw, 2, seed=7) == [draw()] * 2 == run(draw, 2, seed=7)
    assert run(draw, 2, seed=8) != run(draw, 2, seed=7)


# Failures


def test_exception_of_a_rank():
    def divide():
        if dist.get_rank() == 1:
            return 1 / 0
        dist.barrier()

    rank_on_all()
    workers = pids()
    with pytest.raises(ZeroDivisionError, match="division by zero") as caught:
        run(divide, 2)
    where, story = caught.value.__notes__
    assert where == "on rank 1 of 2 (a gloo process)"
    line = divide.__code__.co_firstlineno + 2
    assert story.startswith("Traceback (most recent call last):\n")
    assert f'{__file__}", line {line}, in divide\n    return 1 / 0\n' in story
    assert os.path.dirname(processes.__file__) not in story
    assert all(is_gone(pid) for pid in workers)
    assert rank_on_all() == [0, 1]


def test_exceptions_of_all_ranks_are_one():
    class Late(Exception):  # comes back as the very class, though the workers know it only by value
        pass

    def fail():
        raise Late(dist.get_rank())

    with pytest.raises(Late, match="0") as caught:
        run(fail, 2)
    assert caught.value.__notes__[0] == "on rank 0 of 2 (a gloo process)"


def test_exception_that_cannot_be_sent():
    def fail():
        class Locked(Exception):
            pass

        Locked.lock = threading.Lock()  # now it cannot travel at all
        raise Locked("first")

    with pytest.raises(RuntimeError, match="Locked: first") as caught:
        run(fail, 1)
    assert 'raise Locked("first")' in caught.value.__notes__[1]


def test_killed_worker():
    def train():
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()  # fails as the peer dies, which must not pass for the cause

    rank_on_all()
    workers = pids()
    with pytest.raises(WorkerDied) as caught:
        run(train, 2)
    assert str(caught.value) == f"rank 1 of 2 was killed by signal SIGKILL (pid {workers[1]}) while it ran train"
    assert all(is_gone(pid) for pid in workers)
    assert rank_on_all() == [0, 1]


def test_worker_that_exits():
    with pytest.raises(WorkerDied, match=r"rank 0 of 1 ended with exit code 3 \(pid \d+\) while it ran _exit"):
        run(os._exit, 1, (3,))


def test_worker_that_died_between_calls():
    rank_on_all()
    worker = pool.workers[1]
    worker.kill()
    worker.wait()
    assert rank_on_all() == [0, 1]


@pytest.fixture
def time_is_up(monkeypatch, tmp_path):
    """The timeout of 1 s comes when the ranks stand where they will stand: so many have left a file, so many have
    returned. Else the clock goes a hundred times slower."""
    calls = []

    class Seen(call.Call):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            calls.append(self)

    class Clock:
        files = returned = 0

        def monotonic(self):
            stand = len(list(tmp_path.iterdir())) == self.files and len(calls[-1].said["returned"]) == self.returned
            return time.monotonic() / 100 + 2 * stand

    monkeypatch.setattr(call, "Call", Seen)
    clock = Clock()
    monkeypatch.setattr(call, "time", clock)
    return clock


def note_when_in(function, folder):
    """Leave a file in the folder once this thread is in a function of that name."""
    me = threading.get_ident()

    def look():
        while function not in {frame.name for frame in traceback.extract_stack(sys._current_frames()[me])}:
            pass
        (folder / os.environ["RANK"]).touch()

    threading.Thread(target=look, daemon=True).start()


def test_timeout_says_where_each_rank_stands(time_is_up, tmp_path):
    time_is_up.files, time_is_up.returned = 2, 1

    def train():
        if dist.get_rank() == 0:
            note_when_in("barrier", tmp_path)
            dist.barrier()
        if dist.get_rank() == 1:
            (tmp_path / "1").touch() or time.sleep(1000)

    rank_on_all(3)
    workers = pids()
    with pytest.raises(TimeoutError) as caught:
        run(train, 3, timeout=1)
    first = train.__code__.co_firstlineno
    report = str(caught.value).splitlines()
    assert report[0] == "launch: 2 of 3 ranks did not finish train in 1 s"
    assert report[1] == "  rank 0 is in dist.barrier"
    assert report[2].endswith(f"test_processes.py, line {first + 3}, in train: dist.barrier()")
    assert report[3] == "  rank 1 is in no torch.distributed call"
    here = '(tmp_path / "1").touch() or time.sleep(1000)'
    assert report[4].endswith(f"test_processes.py, line {first + 5}, in train: {here}")
    assert report[5:] == ["  rank 2: finished"]
    assert all(is_gone(pid) for pid in workers)


def test_timeout_while_the_group_is_made(time_is_up, tmp_path):
    time_is_up.files, time_is_up.returned = 1, 1

    def join():
        if os.environ["RANK"] == "0":
            note_when_in("init_process_group", tmp_path)
            dist.init_process_group("gloo")

    rank_on_all()
    with pytest.raises(TimeoutError, match=r"rank 0 is in dist\.init_process_group\n    at "):
        run(join, 2, init=False, timeout=1)


def test_timeout_covers_a_worker_that_reads_nothing():
    rank_on_all()
    workers = pids()
    os.kill(workers[1], signal.SIGSTOP)  # as Ctrl-Z does
    with pytest.raises(TimeoutError) as caught:
        run(lambda more_than_a_pipe_holds: None, 2, (torch.zeros(1 << 20),), timeout=0.5)
    assert "  rank 1 is in native code, or stopped: no response" in str(caught.value).splitlines()
    assert all(is_gone(pid) for pid in workers)
    assert rank_on_all() == [0, 1]


def never_ready():
    says_nothing = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    return subprocess.Popen(says_nothing, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def test_timeout_covers_the_start(monkeypatch):
    pool.stop()
    monkeypatch.setattr("tinydist.processes.pool.start_worker", never_ready)
    with pytest.raises(TimeoutError) as caught:
        run(rank_on_all, 2, timeout=0)
    assert str(caught.value) == "launch: 2 of 2 ranks did not start in 0 s\n  ranks 0-1: starting"
    assert pool.workers == []


def test_interrupt():
    def interrupt(kernel):
        if dist.get_rank() == 1:
            os.kill(kernel, signal.SIGINT)
        dist.monitored_barrier() if dist.get_rank() == 0 else time.sleep(1000)

    rank_on_all()
    workers = pids()
    with pytest.raises(KeyboardInterrupt) as caught:
        run(interrupt, 2, (os.getpid(),))
    (note,) = caught.value.__notes__
    assert "rank 1 is in no torch.distributed call\n    at " in note and "time.sleep(1000)" in note
    assert all(is_gone(pid) for pid in workers)
    assert rank_on_all() == [0, 1]


# What cannot be


def test_no_ranks():
    with pytest.raises(ValueError, match="ranks must be an integer >= 1, got 0"):
        run(rank_on_all, 0)


def test_too_few_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="nccl requires one GPU per rank: 2 ranks, but 1 GPUs are available"):
        run(rank_on_all, 2, backend="nccl")


def test_backend_that_is_not_there():
    with pytest.raises(ValueError, match="without the backend 'carrier_pigeon'"):
        run(rank_on_all, 2, backend="carrier_pigeon")


def test_what_cannot_be_sent():
    rank_on_all()
    workers = pids()
    lock = threading.Lock()

    def train(model):
        return lock

    with pytest.raises(TypeError, match="launch: 'lock', which train uses, is not picklable"):
        run(train, 2, (1,))
    with pytest.raises(TypeError, match="launch: argument 1 of rank_on_all is not picklable"):
        run(rank_on_all, 2, (1, lock))
    assert pids() == workers  # nothing was sent, so nothing had to stop


def test_result_that_cannot_be_sent():
    def train():
        return threading.Lock()

    with pytest.raises(TypeError, match=r"launch: the return value of train \(lock\) is not picklable") as caught:
        run(train, 2)
    assert caught.value.__notes__[0] == "on rank 0 of 2 (a gloo process)"


# Whole programs

SCRIPT = """
import os, time
from tinydist import processes

print("main runs")

def wait():
    os.write(2, b"up ")
    time.sleep({seconds})

processes.run(wait, 2)
"""


def script(seconds, folder):
    """A script that runs two ranks. They have its stderr, which so stays open while one of them lives."""
    command = [sys.executable, "-c", SCRIPT.format(seconds=seconds)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(folder)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def test_no_worker_outlives_a_kernel_that_ends(tmp_path):
    out, err = script(0, tmp_path).communicate(timeout=GUARD)
    assert out == b"main runs\n"  # and only once: workers don't import it
    assert err == b"up up "


def test_no_worker_outlives_a_kernel_that_is_killed(tmp_path):
    kernel = script(1000, tmp_path)
    assert kernel.stderr.read(6) == b"up up "
    kernel.kill()
    kernel.communicate(timeout=GUARD)


CELL = """
from tinydist import processes
import torch.distributed as dist

factor = 3

class Mine(Exception):
    pass

def train(n):
    print("hello")
    return n * factor * dist.get_rank()

def fail():
    raise Mine("no")  # this line

print(processes.run(train, 2, (7,)))
try:
    processes.run(fail, 2)
except Mine as error:
    print(error.__notes__[0], "# this line" in error.__notes__[1])
"""


def test_notebook():
    manager, client = start_new_kernel(env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    said = []
    try:
        reply = client.execute_interactive(CELL, timeout=GUARD, output_hook=said.append)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert reply["content"]["status"] == "ok", reply
    printed = "".join(message["content"]["text"] for message in said if message["msg_type"] == "stream")
    assert printed.splitlines() == [
        "[rank 0] hello",
        "[rank 1] hello",
        "[0, 21]",
        "on rank 0 of 2 (a gloo process) True",
    ]
