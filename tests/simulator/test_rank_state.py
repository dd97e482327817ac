"""What every process has for itself, every rank has for itself; and the kernel's own is as it was before."""

import contextlib
import io
import json
import os
import random
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
from functools import partial

import numpy
import pytest
import torch
import torch.distributed as dist
from clock_by_hand import GUARD

import tinydist
from tinydist.simulator.rank_state import RankStream


def meet():
    """Let the others run."""
    dist.barrier()


def by_rank(*values):
    return values[dist.get_rank()]


# Random numbers.


def dropout(steps):
    """Dropout's masks, one a step, with communication between the steps."""
    masks = []
    for _ in range(steps):
        masks.append(torch.nn.functional.dropout(torch.ones(20)).tolist())
        if dist.is_initialized():
            meet()
    return masks


def alone(seed, fn, *args):
    """What one process that starts from ``seed`` draws."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return fn(*args)


@pytest.mark.parametrize("seed", [0, 7])
def test_dropout_draws_from_each_ranks_own_generator(seed):
    want = alone(seed, dropout, 3)
    assert tinydist.launch(dropout, 4, 3, seed=seed).results == [want] * 4
    assert want[0] != want[1]


def test_a_rank_that_draws_more_does_not_disturb_the_others():
    def program():
        for _ in range(by_rank(0, 5, 0)):
            torch.rand(3)
            meet_pairwise()
        return torch.rand(3).tolist()

    def meet_pairwise():
        dist.barrier(dist.new_group([1], use_local_synchronization=True))

    results = tinydist.launch(program, 3).results
    assert results[0] == results[2] == alone(0, lambda: torch.rand(3).tolist())
    assert results[1] != results[0]


def test_ranks_that_seed_themselves():
    def program():
        torch.manual_seed(100 + dist.get_rank())
        meet()
        return dropout(2)

    assert tinydist.launch(program, 3).results == [alone(100 + rank, dropout, 2) for rank in range(3)]


def test_torch_generators_of_a_rank_are_kept_across_communication():
    def program():
        state = torch.get_rng_state()
        first = torch.rand(2).tolist()
        meet()
        torch.set_rng_state(state)
        meet()
        return first == torch.rand(2).tolist(), torch.initial_seed()

    assert tinydist.launch(program, 3, seed=11).results == [(True, 11)] * 3


def test_initial_seed_is_that_of_the_rank():
    def program():
        torch.manual_seed(50 + dist.get_rank())
        meet()
        return torch.initial_seed()

    assert tinydist.launch(program, 3).results == [50, 51, 52]


DRAWS = {
    "random": lambda: (random.random(), random.randrange(1000), *random.sample(range(100), 3), random.gauss(0, 1)),
    "numpy": lambda: (numpy.random.rand(), *numpy.random.randint(0, 1000, 3).tolist(), numpy.random.standard_normal()),
    "torch": lambda: (torch.rand(1).item(), *torch.randperm(10).tolist(), torch.randn(()).item()),
}
SEED = {
    "random": lambda seed: random.seed(seed),
    "numpy": lambda seed: numpy.random.seed(seed),
    "torch": lambda seed: torch.manual_seed(seed),
}


@pytest.mark.parametrize("source", DRAWS)
def test_each_rank_has_its_own_generator(source):
    draw = DRAWS[source]

    def program():
        drawn = []
        for _ in range(3):
            drawn.append(draw())
            meet()
        return drawn

    results = tinydist.launch(program, 4).results
    assert results == [results[0]] * 4
    assert len(set(results[0])) == 3
    assert tinydist.launch(program, 2).results[0] == results[0]
    assert tinydist.launch(program, 2, seed=1).results[0] != results[0]


@pytest.mark.parametrize("source", DRAWS)
def test_each_rank_seeds_its_own_generator(source):
    def program():
        SEED[source](by_rank(1, 2, 1))
        meet()
        first = DRAWS[source]()
        meet()
        return first, DRAWS[source]()

    results = tinydist.launch(program, 3).results
    assert results[0] == results[2] != results[1]


def test_python_random_draws_what_a_process_with_that_seed_draws():
    want = random.Random(5)
    assert tinydist.launch(lambda: (meet(), random.random())[1], 3, seed=5).results == [want.random()] * 3


def test_a_function_of_random_that_the_kernel_imported_leaves_the_kernels_generator_alone():
    from random import random as drawn

    state = random.getstate()
    tinydist.launch(lambda: drawn(), 2)
    assert random.getstate() == state


def test_states_of_random_and_numpy():
    def program():
        states = random.getstate(), numpy.random.get_state()
        first = random.random(), numpy.random.rand()
        meet()
        random.setstate(states[0])
        numpy.random.set_state(states[1])
        meet()
        return first == (random.random(), numpy.random.rand())

    assert tinydist.launch(program, 3).results == [True] * 3


# The rest of what a process has.


def test_default_dtype():
    def program():
        if dist.get_rank() == 1:
            torch.set_default_dtype(torch.float64)
        meet()
        return torch.zeros(1).dtype

    assert tinydist.launch(program, 3).results == [torch.float32, torch.float64, torch.float32]


def test_grad_mode():
    def program():
        with by_rank(contextlib.nullcontext, torch.no_grad, torch.inference_mode)():
            meet()
            return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    assert tinydist.launch(program, 3).results == [(True, False), (False, False), (False, True)]


def test_autocast():
    def program():
        with torch.autocast("cpu", torch.bfloat16, enabled=by_rank(True, False)):
            meet()
            return (torch.ones(1, 1) @ torch.ones(1, 1)).dtype

    assert tinydist.launch(program, 2).results == [torch.bfloat16, torch.float32]


def test_default_device():
    def program():
        if dist.get_rank() == 0:
            torch.set_default_device("meta")
        meet()
        return torch.ones(1).device.type

    assert tinydist.launch(program, 2).results == ["meta", "cpu"]
    assert torch.ones(1).device.type == "cpu"


def test_environment():
    def program():
        os.environ["MINE"] = str(dist.get_rank())
        meet()
        names = "MINE", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"
        return [os.environ[name] for name in names] + [os.getenv("RANK")]

    ranks = ["0", "1", "2"]
    assert tinydist.launch(program, 3).results == [[rank, rank, rank, "3", "3", rank] for rank in ranks]
    assert "MINE" not in os.environ and "RANK" not in os.environ


def test_the_kernels_environment_is_inherited(monkeypatch):
    monkeypatch.setenv("FROM_THE_KERNEL", "yes")

    def program():
        value = os.environ.pop("FROM_THE_KERNEL")
        meet()
        return value

    assert tinydist.launch(program, 2).results == ["yes"] * 2
    assert os.environ["FROM_THE_KERNEL"] == "yes"


def test_redirected_output(capsys):
    def program():
        with contextlib.redirect_stdout(io.StringIO()) if dist.get_rank() == 1 else contextlib.nullcontext() as caught:
            meet()
            print("hello from", dist.get_rank())
            meet()
        print("bye")
        return caught and caught.getvalue()

    assert tinydist.launch(program, 3).results == [None, "hello from 1\n", None]
    out = capsys.readouterr().out.splitlines()
    assert "[rank 1] hello from 1" not in out
    assert sorted(out) == sorted(
        ["[rank 0] hello from 0", "[rank 2] hello from 2", *(f"[rank {rank}] bye" for rank in range(3))]
    )


def test_worlds():
    def program():
        if dist.get_rank() == 0:
            dist.destroy_process_group()
            return dist.is_initialized()
        dist.barrier(dist.new_group([1, 2], use_local_synchronization=True))
        return dist.is_initialized(), dist.get_rank(), dist.get_world_size()

    assert tinydist.launch(program, 3).results == [False, (True, 1, 3), (True, 2, 3)]


# The kernel.


def native_environment():
    """What native code and new processes see."""
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    return json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)


def kernel_state():
    """All that a launch could disturb. Looking changes nothing."""
    return {
        "torch": torch.get_rng_state().tolist(),
        "initial seed": torch.initial_seed(),
        "random": random.getstate(),
        "numpy": [part.tolist() if isinstance(part, numpy.ndarray) else part for part in numpy.random.get_state()],
        "functions of random": {name: getattr(random, name) for name in random.__all__},
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.get_deterministic_debug_mode(),
        "places": (os.getcwd(), list(sys.path)),
        "filters": list(warnings.filters),
        "showwarning": warnings.showwarning,
        "environment": dict(os.environ),
        "native environment": native_environment(),
        "streams": (sys.stdout, sys.stderr),
        "excepthook": (sys.excepthook, threading.excepthook),
        "world": dist.distributed_c10d._world,
        "backend": dist.distributed_c10d._backend,
        "init method": dist.distributed_c10d._default_pg_init_method,
        "functions": (dist.distributed_c10d._new_process_group_helper, dist.distributed_c10d.rendezvous),
        "initialized": dist.is_initialized(),
        "processors": os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None,
    }


def disturbs(then):
    """Changes on every rank all that a program can change; then ends well or badly."""
    rank = dist.get_rank()
    torch.manual_seed(rank)
    random.seed(rank)
    numpy.random.seed(rank)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("cpu")
    torch.set_grad_enabled(False)
    torch.set_num_threads(2)
    warnings.simplefilter("ignore")
    torch.use_deterministic_algorithms(True)
    os.chdir("/")
    sys.path.append("/")
    os.environ.update(DISTURBED="yes", RANK="7")
    os.environ.pop("PATH", None)
    sys.stdout = io.StringIO()
    sys.excepthook = print
    meet()
    torch.rand(3), random.random(), numpy.random.rand()
    then()


def nothing():
    pass


def exception():
    if dist.get_rank() == 1:
        raise ValueError("planted")
    meet()


def deadlock():
    if dist.get_rank() == 1:
        meet()


def mismatch():
    dist.all_reduce(torch.ones(1 + dist.get_rank()))


def interrupt():
    if dist.get_rank() == 1:
        raise KeyboardInterrupt
    meet()


def leaving():
    if dist.get_rank() == 1:
        sys.exit(3)
    meet()


def stuck():
    while dist.get_rank() == 1:
        time.sleep(0.01)
    meet()


ENDS = {
    nothing: None,
    leaving: RuntimeError,
    stuck: tinydist.StuckError,
    exception: ValueError,
    deadlock: RuntimeError,
    mismatch: RuntimeError,
    interrupt: RuntimeError,
}
TIMEOUTS = {stuck: 0.2}


@pytest.mark.parametrize("then", ENDS, ids=lambda then: then.__name__)
def test_the_kernel_is_as_it_was(then):
    before = kernel_state()
    with pytest.raises(ENDS[then]) if ENDS[then] else contextlib.nullcontext():
        tinydist.launch(disturbs, 3, then, timeout=TIMEOUTS.get(then))
    after = kernel_state()
    assert {name: value for name, value in after.items() if value != before[name]} == {}


def test_a_kernel_that_is_not_as_new_is_as_it_was():
    """The kernel's own settings neither reach the ranks nor are lost."""
    try:
        torch.manual_seed(123)
        random.seed(123)
        numpy.random.seed(123)
        want = [torch.rand(2).tolist(), random.random(), numpy.random.rand(), torch.rand(2).tolist()]
        torch.manual_seed(123)
        random.seed(123)
        numpy.random.seed(123)
        torch.set_default_dtype(torch.float64)
        with torch.no_grad():
            got = [torch.rand(2, dtype=torch.float32).tolist()]
            fresh = tinydist.launch(lambda: (torch.ones(1).dtype, torch.is_grad_enabled()), 2).results
            assert not torch.is_grad_enabled()
        assert torch.get_default_dtype() is torch.float64
        got += [random.random(), numpy.random.rand(), torch.rand(2, dtype=torch.float32).tolist()]
    finally:
        torch.set_default_dtype(torch.float32)
    assert fresh == [(torch.float32, True)] * 2
    assert got == want


@pytest.fixture
def own_group(tmp_path):
    """The kernel's own process group, of one gloo process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("then", ENDS, ids=lambda then: then.__name__)
def test_the_kernels_own_process_group_works_on(own_group, then):
    subgroup = dist.new_group([0])
    with pytest.raises(ENDS[then]) if ENDS[then] else contextlib.nullcontext():
        tinydist.launch(disturbs, 3, then, timeout=TIMEOUTS.get(then))
    assert (dist.get_backend(), dist.get_rank(), dist.get_world_size()) == ("gloo", 0, 1)
    assert dist.group.WORLD is own_group
    for group in (None, subgroup, dist.new_group([0])):
        x = torch.tensor([5.0])
        dist.all_reduce(x, group=group)
        assert x.item() == 5.0
    functional = torch.distributed._functional_collectives.all_reduce(torch.tensor([2.0]), "sum", own_group)
    assert functional.item() == 2.0


def test_ranks_do_not_see_the_kernels_process_group(own_group):
    def program():
        return dist.is_initialized()

    assert tinydist.launch(program, 2, init=False).results == [False, False]
    assert tinydist.launch(dist.get_world_size, 2).results == [2, 2]


def test_no_group_is_left_after_a_launch():
    tinydist.launch(lambda: dist.new_group([0, 1]) and None, 2)
    assert not dist.is_initialized()
    assert tinydist.launch(dist.is_initialized, 2, init=False).results == [False, False]


# Prints.


def lines(capsys):
    return capsys.readouterr().out.splitlines()


def test_prints_are_prefixed_and_in_order(capsys):
    def program():
        print("one", dist.get_rank(), sep="-")
        meet()
        print("two")

    tinydist.launch(program, 3)
    assert lines(capsys) == [f"[rank {rank}] one-{rank}" for rank in range(3)] + [
        f"[rank {rank}] two" for rank in range(3)
    ]


def test_lines_are_whole_though_other_ranks_print_between(capsys):
    def program():
        for word in ("a", "b", "c"):
            print(word, end=" ")
            meet()
        print("end")

    tinydist.launch(program, 3)
    assert lines(capsys) == [f"[rank {rank}] a b c end" for rank in range(3)]


def test_a_last_line_without_its_end_is_shown(capsys):
    tinydist.launch(lambda: print("no end", end=""), 2)
    assert lines(capsys) == ["[rank 0] no end", "[rank 1] no end"]


def test_several_lines_in_one_print(capsys):
    tinydist.launch(lambda: print("a\n\nb"), 1)
    assert lines(capsys) == ["[rank 0] a", "[rank 0] ", "[rank 0] b"]


def test_a_progress_bar_shows_its_last_state(capsys):
    def program():
        for step in range(4):
            print(f"\rstep {step}", end="")
            meet()
        print()
        print("done")

    tinydist.launch(program, 2)
    assert sorted(lines(capsys)) == [f"[rank {rank}] {text}" for rank in range(2) for text in ("done", "step 3")]


@pytest.mark.parametrize("end", ["", "\r", "\n", "\r\n"])
def test_a_progress_bar_that_returns_after_each_state(end, capsys):
    def program():
        for step in range(4):
            print(f"step {step}", end="\r")
        print("all", end=end)

    tinydist.launch(program, 1)
    assert lines(capsys) == ["[rank 0] all"]


@pytest.mark.parametrize("update", ["\rstep", "step\r", "."])
def test_an_update_costs_the_same_however_many_came_before(update):
    def cheapest():
        """Of some updates, since a list grows in leaps."""
        costs = []
        for _ in range(8):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            stream.write(update)
            costs.append(tracemalloc.get_traced_memory()[1] - before)
        return min(costs)

    stream = RankStream(0, "stdout", show=None)
    stream.write(update)
    tracemalloc.start()
    try:
        first = cheapest()
        for _ in range(2000):
            stream.write(update)
        assert cheapest() <= first
    finally:
        tracemalloc.stop()


def test_a_progress_bar_of_tqdm(capsys):
    from tqdm import tqdm

    def program():
        for _ in tqdm(range(3), bar_format="{n_fmt} of {total_fmt}", disable=dist.get_rank() > 0):
            meet()

    tinydist.launch(program, 2)
    assert capsys.readouterr().err == "[rank 0] 3 of 3\n"


def test_errors_and_warnings_of_ranks_go_where_those_of_the_kernel_go(capsys):
    def program():
        print("to stderr", file=sys.stderr)
        sys.stderr.write("written\n")
        sys.stdout.write("out\n")
        sys.stdout.flush()

    tinydist.launch(program, 1)
    captured = capsys.readouterr()
    assert captured.err == "[rank 0] to stderr\n[rank 0] written\n"
    assert captured.out == "[rank 0] out\n"


@pytest.mark.parametrize("then", [exception, deadlock, mismatch, interrupt], ids=lambda then: then.__name__)
def test_prints_before_a_failure_are_shown(capsys, then):
    def program():
        print("before")
        meet()
        print("after")
        then()

    with pytest.raises(ENDS[then]):
        tinydist.launch(program, 2)
    assert lines(capsys)[:3] == ["[rank 0] before", "[rank 1] before", "[rank 0] after"]


def test_prints_appear_while_the_program_runs():
    seen, by_main_thread = threading.Event(), []

    class Watched(io.StringIO):
        def write(self, text):
            by_main_thread.append(threading.current_thread() is threading.main_thread())
            seen.set()

    def program():
        print("early")
        return seen.wait(GUARD)

    with contextlib.redirect_stdout(Watched()):
        assert tinydist.launch(program, 1).results == [True]
    assert all(by_main_thread)


def test_prints_of_the_same_program_are_the_same(capsys):
    def program():
        for step in range(5):
            print(step, torch.rand(1).item())
            x = torch.ones(1)
            works = [dist.all_reduce(x, async_op=True) for _ in range(by_rank(2, 2, 2, 2))]
            for work in works:
                work.wait()

    outputs = []
    for _ in range(3):
        tinydist.launch(program, 4)
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] == outputs[2] and outputs[0].count("\n") == 20


def test_a_program_that_looks_at_its_terminal():
    def program():
        return sys.stdout.isatty(), sys.stdout.encoding

    assert tinydist.launch(partial(program), 1).results == [(False, "utf-8")]


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts the threads of a process as Linux lists them")
def test_a_rank_computes_alone():
    """OpenMP starts threads for each thread that computes; beside a rank, on its processor, they would only spin."""
    program = """
import os
import torch
import tinydist
from tinydist.simulator.rank_state import RankStream

def threads_started():
    before = set(os.listdir("/proc/self/task"))
    torch.nn.functional.linear(torch.ones(512, 512), torch.ones(512, 512)), torch.ones(10**6) + 1
    return len(set(os.listdir("/proc/self/task")) - before)

print(tinydist.launch(threads_started, 2).results)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert run.stdout.strip() == "[0, 0]", run.stderr
