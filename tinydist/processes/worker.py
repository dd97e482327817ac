"""The worker process: a fresh Python interpreter that runs one program per call, as one rank."""

import os
import queue
import random
import sys
import threading
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress
from traceback import TracebackException

import cloudpickle
import numpy
import torch
import torch.distributed as dist

from ..simulator.call_sites import learners_traceback, site_of
from ..simulator.per_rank import forget
from ..simulator.rank_exit import run_to_exit
from ..simulator.rank_state import RankStream
from ..torch_internals import excepthook_unchanged
from .pickles import can_travel, name_of, receive, send


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
    """Forward commands to the main thread; report a busy rank's stack immediately. Exit with the kernel."""
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


def perform(reply, variables, *how):
    """Run the program. The reply that tells how it went."""
    streams = [RankStream(None, name, lambda _, *line: reply("line", line)) for name in ("stdout", "stderr")]
    # catch_warnings: a warning that comes once comes once in each call.
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]), warnings.catch_warnings(), excepthook_unchanged():
        try:
            return "returned", run_to_exit(variables["RANK"], take_part, (variables, *how))
        except BaseException as error:
            return "raised", pack_error(error)
        finally:
            for stream in streams:
                stream.close_line()


def take_part(variables, program, path, folder, backend, seed, meeting):
    """Run the program as the rank that ``variables`` say. Its result, as bytes."""
    start_afresh(variables, path, folder, seed)
    fn, args = cloudpickle.loads(program)
    rank, ranks = int(variables["RANK"]), int(variables["WORLD_SIZE"])
    if backend == "nccl":
        torch.cuda.set_device(rank)
    if meeting:
        store = dist.FileStore(meeting, ranks)
        dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)
    return pack_result(fn, fn(*args))


def start_afresh(variables, path, folder, seed):
    """Reset this process to the state of a newly started worker."""
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:] = path
    os.chdir(folder)
    forget()
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
        raise TypeError(f"launch: the return value of {name_of(fn)} ({kind}) is not picklable: {error}") from None


def pack_error(error):
    """The error and its story, without source lines: the kernel, which has those of its cells, adds them."""
    for told in (error, Remade(error)):
        if packed := with_story(error, told):
            return packed
    words = "".join(TracebackException.from_exception(error).format_exception_only()).strip()
    told = RuntimeError(words).with_traceback(error.__traceback__)
    return with_story(told, told)


def with_story(error, told):
    """``told`` and the story of ``error`` as bytes; None if they would not arrive."""
    story = TracebackException(type(error), error, learners_traceback(error), lookup_lines=False)
    with suppress(Exception):
        packed = cloudpickle.dumps((told, story))
        cloudpickle.loads(packed)
        return packed


class Remade:
    """Arrives as the exception that it is made from, without what cannot travel: where its constructor wants other
    arguments than its ``args``, or an attribute is a lock."""

    def __init__(self, error):
        attributes = {name: value for name, value in vars(error).items() if can_travel(value)}
        self.parts = type(error), error.args, attributes

    def __reduce__(self):
        return remade, self.parts


def remade(kind, args, attributes):
    error = kind.__new__(kind, *args)
    vars(error).update(attributes)
    return error
