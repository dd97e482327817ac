"""Answers that would end, block, fill or fool what judges them, by public names alone: none passes, and none hangs.

With those of tests/lab/test_hostile.py and tests/lab/test_fooled.py they are 80 and more.
"""

import asyncio
import builtins
import collections
import ctypes
import decimal
import functools
import gc
import inspect
import itertools
import mmap
import multiprocessing
import operator
import os
import pickle
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
import torch
import torch.distributed as dist
from lab.test_fooled import named, right
from lab.toy_course import toy as toy

from tinydist.lab import isolation
from tinydist.lab.judging import judge_isolated

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(not isolation.AVAILABLE, reason="forks, which is safe on Linux"),
]
ANSWERS = []


def hostile(answer):
    ANSWERS.append(answer)
    return answer


# It ends the process, or what it was started by.


@hostile
def reads_address_zero(tensor):
    return ctypes.string_at(0)


@hostile
def terminates(tensor):
    os.kill(os.getpid(), signal.SIGTERM)


@hostile
def interrupts(tensor):
    os.kill(os.getpid(), signal.SIGINT)


@hostile
def interrupts_its_main_thread(tensor):
    import _thread

    _thread.interrupt_main()
    return right(tensor)


@hostile
def interrupts_by_an_alarm(tensor):
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    while True:
        tensor = tensor + 0


@hostile
def stops(tensor):
    os.kill(os.getpid(), signal.SIGSTOP)


@hostile
def becomes_another_program(tensor):
    os.execv("/bin/true", ["true"])


@hostile
def kills_its_group(tensor):
    os.killpg(os.getpgid(0), signal.SIGKILL)


@hostile
def exits_later(tensor):
    import atexit

    atexit.register(os._exit, 0)
    return tensor


@hostile
def raises_system_exit(tensor):
    raise SystemExit(0)


@hostile
def calls_sys_exit_in_a_thread(tensor):
    thread = threading.Thread(target=sys.exit)
    thread.start()
    thread.join()
    return right(tensor)


@hostile
def raises_keyboard_interrupt(tensor):
    raise KeyboardInterrupt


@hostile
def raises_generator_exit(tensor):
    raise GeneratorExit


@hostile
def raises_a_base_exception(tensor):
    class Own(BaseException):
        pass

    raise Own


@hostile
def raises_stop_iteration(tensor):
    return next(iter(()))


@hostile
def recurses(tensor):
    return recurses(tensor)


@hostile
def recurses_without_limit(tensor):
    sys.setrecursionlimit(10**9)
    return recurses_without_limit(tensor)


@hostile
def nests_in_native_code(tensor):
    nested = []
    for _ in range(10**6):
        nested = [nested]
    return repr(nested)


@hostile
def leaves_a_process_behind(tensor):
    if os.fork() == 0:
        time.sleep(10**6)
    os._exit(0)


@hostile
def lets_a_fork_answer(tensor):
    if os.fork():
        time.sleep(10**6)
    return tensor


@hostile
def closes_every_file(tensor):
    os.closerange(3, 5000)
    return right(tensor)


@hostile
def closes_standard_output(tensor):
    sys.stdout.close()
    print("after")
    return tensor


# It does not end.


@hostile
def ignores_its_limit(tensor):
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    return max(iter(int, 1))


@hostile
def raises_its_limits(tensor):
    resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return sum(itertools.repeat(0))


@hostile
def sleeps(tensor):
    time.sleep(10**6)


@hostile
def waits_for_a_lock(tensor):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@hostile
def waits_for_a_pipe(tensor):
    read, _ = os.pipe()
    os.read(read, 1)


@hostile
def waits_for_a_connection(tensor):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.accept()


@hostile
def waits_for_input(tensor):
    read, _ = os.pipe()
    os.dup2(read, 0)
    with open(0, closefd=False) as sys.stdin:
        return input()


@hostile
def waits_for_signals(tensor):
    while True:
        signal.pause()


@hostile
def waits_in_asyncio(tensor):
    asyncio.run(asyncio.sleep(10**6))


@hostile
def catches_all_for_ever(tensor):
    while True:
        try:
            while True:
                tensor = tensor + 0
        except BaseException:
            pass


@hostile
def a_power_of_a_power(tensor):
    return 9**9**9


@hostile
def a_factorial(tensor):
    import math

    return math.factorial(10**8)


@hostile
def backtracks(tensor):
    return re.match(r"(a|a)*$", "a" * 60 + "b")


@hostile
def sorts_for_ever(tensor):
    return sorted(itertools.count())


@hostile
def drains(tensor):
    return collections.deque(itertools.count(), maxlen=0)


@hostile
def reduces_for_ever(tensor):
    return functools.reduce(operator.and_, itertools.repeat(1))


@hostile
def compares_for_ever(tensor):
    class Never:
        def __eq__(self, other):
            return max(iter(int, 1))

    return Never()


class Endless:
    def __repr__(self):
        return str(max(iter(int, 1)))

    __str__ = __repr__
    __len__ = lambda self: max(iter(int, 1))  # noqa: E731
    __iter__ = lambda self: itertools.count()  # noqa: E731


@hostile
def returns_what_cannot_be_shown(tensor):
    return Endless()


@hostile
def returns_endlessly_many(tensor):
    return itertools.count()


class EndlessList(list):
    def __iter__(self):
        return itertools.count()

    def __len__(self):
        return 10**9


@hostile
def returns_a_list_without_end(tensor):
    return EndlessList()


@hostile
def returns_a_list_in_itself(tensor):
    whole = []
    whole.append(whole)
    return whole


@hostile
def finalizes_for_ever(tensor):
    class Last:
        def __del__(self):
            max(iter(int, 1))

    Last()
    return tensor


@hostile
def prints_for_ever(tensor):
    while True:
        print("x" * 10**6)


# It takes all there is.


@hostile
def takes_shared_memory(tensor):
    shared = mmap.mmap(-1, 20 * 2**30)
    block = bytes(2**20)
    for _ in range(20 * 2**10):
        shared.write(block)


@hostile
def takes_bytes(tensor):
    return bytearray(20 * 2**30)


@hostile
def takes_numpys(tensor):
    return torch.from_numpy(numpy.ones(20 * 2**27))


@hostile
def takes_a_list(tensor):
    return [0] * (3 * 2**30)


@hostile
def takes_a_little_each_time(tensor):
    kept = []
    while True:
        kept.append(bytes(2**24))


@hostile
def takes_an_integer(tensor):
    return 1 << 2**38


@hostile
def takes_threads(tensor):
    with ThreadPoolExecutor(10**4) as pool:
        list(pool.map(lambda _: time.sleep(10), range(10**4)))


@hostile
def takes_files(tensor):
    return [os.open(os.devnull, os.O_RDONLY) for _ in itertools.count()]


# It would be taken for right.


class Equal(torch.Tensor):
    """A tensor that says yes."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ in ("allclose", "equal", "isclose", "eq", "__eq__"):
            return True
        return super().__torch_function__(function, types, args, kwargs or {})


@hostile
def returns_a_tensor_that_says_yes(tensor):
    return tensor.clone().as_subclass(Equal)


class Yes:
    def __eq__(self, other):
        return True

    def __getattr__(self, name):
        return Yes()

    def __call__(self, *args, **kwargs):
        return Yes()


@hostile
def returns_an_object_that_says_yes(tensor):
    return Yes()


@hostile
def returns_its_type_wrongly(tensor):
    class Tensor:
        __class__ = torch.Tensor

        def __getattr__(self, name):
            return getattr(tensor, name)

    return Tensor()


@hostile
def replaces_tensors_method(tensor):
    torch.Tensor.allclose = lambda *args, **kwargs: True
    return tensor.clone()


@hostile
def replaces_a_built_in(tensor):
    builtins.all = lambda *args: True
    return tensor.clone()


@hostile
def replaces_the_class_of_a_verdict(tensor):
    lab = sys.modules["tinydist.lab.judging"]
    lab.Verdict = functools.partial(lab.Verdict, state="passed")
    return tensor.clone()


@hostile
def replaces_the_property(tensor):
    lab = sys.modules["tinydist.lab.judging"]
    lab.Verdict.passed = property(lambda self: True)
    return tensor.clone()


@hostile
def replaces_what_travels(tensor):
    lab = sys.modules["tinydist.lab.judging"]
    lab.portable = lambda verdict: verdict._replace(exercise=None, state="passed", wrong=None)
    return tensor.clone()


@hostile
def replaces_pickle(tensor):
    pickle.dumps = multiprocessing.reduction.ForkingPickler.dumps = lambda *args: pickle.dumps(("ends", None))
    return tensor.clone()


@hostile
def replaces_the_code_of_a_method(tensor):
    lab = sys.modules["tinydist.lab.judging"]
    lab.Runs.find.__code__ = (lambda self, target, trial: False).__code__
    lab.Runs.raise_wrong.__code__ = (lambda self, target: None).__code__
    return tensor.clone()


@hostile
def empties_what_is_wrong(tensor):
    for thing in gc.get_objects():
        if type(thing).__name__ == "Runs":
            thing.find = lambda *args: None
            thing.exercise.targets = ()
    return tensor.clone()


@hostile
def finds_the_result(tensor):
    for thing in gc.get_objects():
        if type(thing).__name__ == "Trial" and len(thing.returned) > dist.get_rank():
            return thing.returned[dist.get_rank()]
    return tensor.clone()


@hostile
def calls_the_reference(tensor):
    return sys.modules["98_toys.average"].average(tensor)


@hostile
def calls_it_by_its_exercise(tensor):
    return sys.modules["98_toys.average"].EXERCISE.reference(tensor)


@hostile
def looks_up_the_frames(tensor):
    for frame in inspect.stack():
        for value in frame.frame.f_locals.values():
            if type(value).__name__ == "Runs":
                return value.exercise.reference(tensor)
    return tensor.clone()


@hostile
def changes_its_argument_alone(tensor):
    dist.all_reduce(tensor)
    tensor /= dist.get_world_size()


@hostile
def swallows_the_trace(tensor):
    sys.settrace(lambda *args: None)
    threading.settrace(None)
    return tensor.clone()


@hostile
def catches_every_warning(tensor):
    warnings.simplefilter("ignore")
    return tensor.clone()


@hostile
def adds_its_own_errors_notes(tensor):
    error = AssertionError("average: passed")
    error.__notes__ = None
    raise error


@hostile
def speaks_for_the_lab(tensor):
    print("average: passed", file=sys.__stdout__)
    raise RuntimeError("average: passed")


@hostile
def works_in_another_process(tensor):
    subprocess.run([sys.executable, "-c", "pass"])
    return right(tensor)


@hostile
def returns_a_decimal(tensor):
    return decimal.Decimal("NaN")


@hostile
def returns_nan(tensor):
    return torch.full_like(tensor, float("nan"))


@hostile
def raises_what_cannot_be_pickled(tensor):
    class Local(Exception):
        def __reduce__(self):
            raise TypeError("not to be pickled")

    raise Local(lambda: None)


@hostile
def raises_from_itself(tensor):
    error = ValueError("a")
    error.__cause__ = error.__context__ = error
    raise error


@pytest.fixture
def limits(monkeypatch):
    monkeypatch.setattr(isolation, "PATIENCE", 3)
    monkeypatch.setattr(isolation, "IDLE", 15)
    monkeypatch.setattr(isolation, "MEMORY", 2**30)


@pytest.mark.parametrize("answer", ANSWERS)
def test_none_passes_hangs_or_harms(limits, toy, answer):
    verdict = judge_isolated(named(answer), toy)
    assert verdict.state in ("wrong", "not judged"), verdict
    assert str(verdict.wrong)
    assert judge_isolated(named(right), toy).passed
