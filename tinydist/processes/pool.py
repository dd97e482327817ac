"""The worker pool: workers start on demand, are reused by later calls, and end with the kernel."""

import atexit
import os
import queue
import subprocess
import sys
import threading
from contextlib import suppress

from .pickles import receive, send


class Pool:
    """The worker processes by rank, with their command and reply channels."""

    def __init__(self):
        self.workers = []
        self.outboxes = []  # messages to each, in order: a thread sends it, as a worker that is stopped reads nothing
        self.replies = queue.SimpleQueue()  # (rank, kind, content)

    def grow(self, ranks):
        """Start workers until there are enough. The ranks of the new ones."""
        if any(worker.poll() is not None for worker in self.workers):
            self.stop()
        new = range(len(self.workers), ranks)
        for rank in new:
            self.outboxes.append(queue.SimpleQueue())
            self.workers.append(start_worker())
            channel = (rank, self.workers[rank].stdout, self.replies)
            threading.Thread(target=forward, args=channel, daemon=True).start()
            threading.Thread(target=deliver, args=[self.outboxes[rank]], daemon=True).start()
        return new

    def tell(self, rank, command, content=()):
        self.outboxes[rank].put((self.workers[rank].stdin, command, content))

    def stop(self):
        for worker in self.workers:
            worker.kill()
        for worker, outbox in zip(self.workers, self.outboxes):
            worker.wait()
            outbox.put(None)
            with suppress(OSError):
                worker.stdin.close()
        self.__init__()  # with a new queue: replies may still come to this one


def start_worker():
    path = [str(folder) for folder in sys.path]
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path[:] = {path}; from tinydist.processes.worker import work; work()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"TINYDIST_QUIET": "1"},  # until it receives the kernel's environment
        start_new_session=True,  # Ctrl-C is for the kernel alone, which then stops its workers
    )


def deliver(outbox):
    """Sender thread: send queued commands until None. A dead worker is detected when its reply is awaited."""
    while message := outbox.get():
        with suppress(OSError, ValueError):  # ValueError: closed
            send(*message)
        message = None  # the child of a fork, which has no such thread, would keep the worker's stdin open


def forward(rank, stream, replies):
    with stream, suppress(EOFError):
        while True:
            replies.put((rank, *receive(stream)))


pool = Pool()
atexit.register(pool.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.__init__)  # a child may neither stop the workers nor keep them alive
