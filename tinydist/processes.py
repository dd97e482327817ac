"""Real ranks from a notebook: processes of this machine, with gloo or nccl between them.

    kernel                                  a worker for each rank
      | run: function, environment -----------> |  makes the process group, runs the function
      | <-------------------- line: it printed  |
      | <------------------ returned or raised  |
      | leave, when all have returned --------> |  takes the process group down
      | <--------------------------------- left |

Commands go to a worker's stdin, replies come from its stdout. A worker is a fresh Python that never imports
the notebook or script that started it: functions travel by value. It stays for the next call, which so starts
in milliseconds, and ends with the kernel, however that ends: its stdin is closed then.
"""

import atexit
import inspect
import math
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import defaultdict
from contextlib import redirect_stderr, redirect_stdout, suppress
from traceback import TracebackException

import cloudpickle
import numpy
import torch
import torch.distributed as dist

from .simulator.call_sites import learners_traceback, site_of
from .simulator.matching import ranks_in_words
from .simulator.rank_state import RankStream, environment

LOOPBACK = {"linux": "lo", "darwin": "lo0"}  # gloo's own choice needs a hostname that has an address
LOOK = 0.1  # seconds between two looks at whether the workers live
GRACE = 0.3  # seconds from the first failure to the verdict: peers of a dead rank complain before it is seen
ANSWER = 1.0  # seconds for a rank to say where it stands: one in native code may never


class WorkerDied(RuntimeError):
    """The process of a rank ended while it was needed."""


def run(fn, ranks, args=(), *, backend="gloo", seed=0, timeout=None, init=True):
    """What ``fn(*args)`` returned on each of ``ranks`` processes, by rank.

    What ranks print comes out when all have ended, rank by rank, and so in the same order every time.
    ``timeout``, in seconds, counts from when the workers are up. Modules that a worker has imported stay as
    they are.

    Raises what ``fn`` raised, with rank and traceback in its notes; ``WorkerDied``; ``TimeoutError``, which
    says where each rank stands; ``TypeError`` for what cannot be sent to a process. A failure or an interrupt
    stops all workers; the next call starts new ones.
    """
    check(ranks, backend)
    program = pack(fn, args)
    with one_at_a_time:
        call = Call(name_of(fn), ranks, backend, timeout)
        try:
            call.hear("ready", pool.grow(ranks))
            store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            for rank in range(ranks):
                variables = variables_of(rank, ranks, store.port)
                pool.tell(rank, "run", (program, variables, sys.path, os.getcwd(), backend, seed, init))
            results = call.hear("returned", range(ranks))
            # Only now: a rank that left early would close connections that its peers still use.
            for rank in range(ranks):
                pool.tell(rank, "leave")
            call.hear("left", range(ranks))
        except BaseException:
            pool.stop()
            raise
        finally:
            call.show()
    return [cloudpickle.loads(result) for result in results]


def check(ranks, backend):
    if ranks < 1:
        raise ValueError(f"launch: ranks must be a whole number from 1, got {ranks!r}")
    if backend == "nccl" and ranks > (gpus := torch.cuda.device_count()):
        raise ValueError(f"launch: nccl needs a GPU for each rank: {ranks} ranks, but {gpus} GPUs are here")
    if not dist.is_backend_available(backend):
        raise ValueError(f"launch: torch {torch.__version__} is built without the backend {backend!r}")


def name_of(fn):
    return getattr(fn, "__name__", repr(fn))


def pack(fn, args):
    """The call as bytes. In one piece: what two arguments share they share in the worker too."""
    try:
        return cloudpickle.dumps((fn, args))
    except Exception as error:
        raise TypeError(f"launch: {culprit(fn, args)} cannot be sent to a process: {error}") from None


def culprit(fn, args):
    """The smallest part of a call that cannot be pickled, in words."""
    name = name_of(fn)
    parts = {f"argument {number} of {name}": arg for number, arg in enumerate(args)}
    if inspect.isfunction(fn):
        outer = inspect.getclosurevars(fn)
        variables = outer.nonlocals | outer.globals
        parts |= {f"{word!r}, which {name} uses,": value for word, value in variables.items()}
    return next((words for words, part in parts.items() if not can_travel(part)), name)


def can_travel(part):
    try:
        return bool(cloudpickle.dumps(part))
    except Exception:
        return False


def variables_of(rank, ranks, port):
    """The kernel's environment and what torchrun sets: the store is there, and all ranks are its clients."""
    torchrun = environment(rank, ranks) | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }
    interface = {"GLOO_SOCKET_IFNAME": LOOPBACK[sys.platform]} if sys.platform in LOOPBACK else {}
    return interface | dict(os.environ) | {name: str(value) for name, value in torchrun.items()}


class Pool:
    """The workers, by rank, and what they reply."""

    def __init__(self):
        self.workers = []
        self.replies = queue.SimpleQueue()  # (rank, kind, content)

    def grow(self, ranks):
        """Start workers until there are enough. The ranks of the new ones."""
        if any(worker.poll() is not None for worker in self.workers):
            self.stop()
        new = range(len(self.workers), ranks)
        for rank in new:
            self.workers.append(start_worker())
            channel = (rank, self.workers[rank].stdout, self.replies)
            threading.Thread(target=forward, args=channel, daemon=True).start()
        return new

    def tell(self, rank, command, content=()):
        with suppress(OSError):  # a dead worker is found by whoever waits for its reply
            send(self.workers[rank].stdin, command, content)

    def stop(self):
        for worker in self.workers:
            worker.kill()
        for worker in self.workers:
            worker.wait()
            with suppress(OSError):
                worker.stdin.close()
        self.__init__()  # with a new queue: replies may still come to this one


def start_worker():
    path = [str(folder) for folder in sys.path]
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path[:] = {path}; from tinydist.processes import work; work()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the kernel alone, which then stops its workers
    )


def forward(rank, stream, replies):
    with stream, suppress(EOFError):
        while True:
            replies.put((rank, *receive(stream)))


pool = Pool()
one_at_a_time = threading.Lock()
atexit.register(pool.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        after_in_child=pool.__init__
    )  # a child may neither stop the workers nor keep them alive


class Call:
    """One call, as the kernel follows it."""

    def __init__(self, name, ranks, backend, timeout):
        self.name, self.ranks, self.backend, self.timeout = name, ranks, backend, timeout
        self.said = defaultdict(dict)  # kind of reply -> rank -> content
        self.lines = [[] for _ in range(ranks)]  # (stream, line)

    def hear(self, kind, ranks):
        """The replies of that kind, one from each of ``ranks``. Raises what happened instead."""
        limited = kind == "returned" and self.timeout is not None
        deadline = time.monotonic() + (self.timeout if limited else math.inf)
        failing = False
        while len(self.said[kind]) < len(ranks):
            self.take()
            if not failing and (self.said["raised"] or self.dead()):
                failing, deadline = True, time.monotonic() + GRACE
            if time.monotonic() > deadline:
                raise self.failure(kind)
        return [self.said[kind][rank] for rank in ranks]

    def take(self):
        """Wait a moment for a reply."""
        with suppress(queue.Empty):
            rank, kind, content = pool.replies.get(timeout=LOOK)
            if kind == "line":
                self.lines[rank].append(content)
            else:
                self.said[kind][rank] = content

    def dead(self):
        return [rank for rank in range(self.ranks) if pool.workers[rank].poll() is not None]

    def failure(self, awaited):
        if self.dead():
            return self.death(self.dead()[0], awaited)
        return self.exception() if self.said["raised"] else self.overdue()

    def death(self, rank, awaited):
        worker = pool.workers[rank]
        how = f"ended with exit code {worker.returncode}"
        if worker.returncode < 0:
            how = f"was killed by signal {signal.Signals(-worker.returncode).name}"
        task = {"ready": "started", "returned": f"ran {self.name}", "left": "left the process group"}
        who = f"rank {rank} of {self.ranks}"
        return WorkerDied(f"{who} {how} (pid {worker.pid}) while it {task[awaited]}")

    def exception(self):
        """What the first rank raised; where others raised alike, the lowest rank's: always the same."""
        raised = {rank: cloudpickle.loads(content) for rank, content in self.said["raised"].items()}
        kinds = {rank: type(error) for rank, (error, _) in raised.items()}
        rank = min(rank for rank in kinds if kinds[rank] is kinds[next(iter(kinds))])
        error, story = raised[rank]
        error.add_note(f"on rank {rank} of {self.ranks} (a {self.backend} process)")
        error.add_note("".join(story.format()).rstrip())
        return error

    def overdue(self):
        """Who is late, and where."""
        finished = self.said["returned"].keys()
        late = [rank for rank in range(self.ranks) if rank not in finished]
        for rank in late:
            pool.tell(rank, "where")
        deadline = time.monotonic() + ANSWER
        while len(self.said["stands"]) < len(late) and time.monotonic() < deadline:
            self.take()
        report = [f"launch: {len(late)} of {self.ranks} ranks did not finish {self.name} in {self.timeout} s"]
        for rank in late:
            call, site = self.said["stands"].get(rank, ("native code: it does not answer", None))
            report += [f"  rank {rank} is in {call or 'no call of torch.distributed'}"]
            report += [f"    at {site}"] if site else []
        report += [f"  {ranks_in_words(finished)}: finished"] if finished else []
        return TimeoutError("\n".join(report))

    def show(self):
        for rank, lines in enumerate(self.lines):
            for stream, line in lines:
                print(f"[rank {rank}] {line}", file=getattr(sys, stream))


def send(stream, kind, content):
    message = cloudpickle.dumps((kind, content))
    stream.write(len(message).to_bytes(8, "big"))
    stream.write(message)
    stream.flush()


def receive(stream):
    size = int.from_bytes(stream.read(8), "big")
    message = stream.read(size)
    if not message or len(message) < size:  # the other side ended, maybe in the middle
        raise EOFError
    return cloudpickle.loads(message)


def work():
    """The life of a worker."""
    commands, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what native code prints must not get between the replies
    lock, calls = threading.Lock(), queue.SimpleQueue()

    def reply(kind, content=None):
        with lock:
            send(replies, kind, content)

    threading.Thread(target=listen, args=(commands, calls, reply), daemon=True).start()
    reply("ready")
    while True:
        reply(*obey(reply, *calls.get()))


def listen(commands, calls, reply):
    """Hand on the commands, but answer at once where a busy rank stands. End with the kernel."""
    try:
        while True:
            command, content = receive(commands)
            if command == "where":
                reply("stands", standing(sys._current_frames()[threading.main_thread().ident]))
            else:
                calls.put((command, content))
    finally:
        os._exit(1)


def standing(frame):
    """The torch.distributed call that led to ``frame``, and the learner's line; None where there is none."""
    site = site_of(frame)
    call = None
    while frame:
        if frame.f_globals.get("__name__") == dist.distributed_c10d.__name__:
            call = f"dist.{frame.f_code.co_name}"  # the outermost is what the learner called
        frame = frame.f_back
    started_here = site.code.co_filename == "<string>"  # while the process group is made
    return call, None if started_here else site


def obey(reply, command, content):
    if command == "run":
        return perform(reply, *content)
    if dist.is_initialized():
        dist.destroy_process_group()
    return "left", None


def perform(reply, program, variables, path, folder, backend, seed, init):
    """Run the program. The reply that tells how it went."""
    streams = [RankStream(None, name, lambda _, *line: reply("line", line)) for name in ("stdout", "stderr")]
    # catch_warnings: a warning that comes once comes once in each call.
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]), warnings.catch_warnings():
        try:
            start_afresh(variables, path, folder, seed)
            fn, args = cloudpickle.loads(program)
            if backend == "nccl":
                torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            if init:
                dist.init_process_group(backend)
            return "returned", pack_result(fn, fn(*args))
        except BaseException as error:
            return "raised", pack_error(error)
        finally:
            for stream in streams:
                stream.close_line()


def start_afresh(variables, path, folder, seed):
    """Make this process like one that the kernel has just started, whatever the last call did to it."""
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:] = path
    os.chdir(folder)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.set_deterministic_debug_mode("default")
    torch.set_num_threads(1)  # as torchrun does: more threads than cores would wait for each other
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.set_bit_generator(numpy.random.MT19937(seed))  # as on simulated ranks


def pack_result(fn, result):
    try:
        return cloudpickle.dumps(result)
    except Exception as error:
        kind = type(result).__name__
        raise TypeError(
            f"launch: what {name_of(fn)} returned, a {kind}, cannot be sent back: {error}"
        ) from None


def pack_error(error):
    """The error and its story, without source lines: the kernel, which has those of its cells, adds them."""
    story = TracebackException(type(error), error, learners_traceback(error), lookup_lines=False)
    try:
        cloudpickle.loads(cloudpickle.dumps(error))
    except Exception:
        error = RuntimeError("".join(story.format_exception_only()).strip())
    return cloudpickle.dumps((error, story))
