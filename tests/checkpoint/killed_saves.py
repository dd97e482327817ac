"""In a process of its own: children that save a checkpoint are killed in the midst of it, and what is left is loaded.

    python killed_saves.py FOLDER KILLS SEED       a line of JSON for each kill

A child kills itself at a random line of Python, or is killed by the system at a random byte of a file.
"""

import json
import os
import random
import resource
import signal
import sys
import threading

import torch
from checkpoint.small_checkpoints import Small, everything
from zero.ladder import stage_1, stage_2, train

import tinydist
from tinydist import checkpoint
from tinydist.checkpoint import consensus, save_load
from tinydist.checkpoint import files as checkpoint_files

TRACED = {module.__file__ for module in (save_load, checkpoint_files, consensus)}
RANKS, NEVER = 2, 10**9


def states():
    """Of two moments."""
    zero = stage_1(Small())
    for _ in range(2):
        train(zero, everything, steps=1)
        yield checkpoint.gathered(zero)


def save(folder, state):
    zero = stage_2(Small())
    checkpoint.load(zero, state)
    Lines.counting = True
    checkpoint.save(zero, folder)


class Lines:
    """Those of a save that were begun; ``last`` is one too many."""

    counting, begun, last = False, 0, NEVER

    @classmethod
    def trace(cls, frame, event, _):
        if frame.f_code.co_filename in TRACED:
            if cls.counting and event == "line":
                cls.begun += 1
                if cls.begun > cls.last:
                    os.kill(os.getpid(), signal.SIGKILL)
            return cls.trace


def child(folder, state, line=NEVER, byte=None):
    """The lines that it ran, or else the signal that it died of."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        if byte is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (byte, byte))
        Lines.last = line
        threading.settrace(Lines.trace)
        tinydist.launch(save, RANKS, folder, state)
        os.write(writes, str(Lines.begun).encode())
        os._exit(0)
    os.close(writes)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(reads) as lines:
        return int(lines.read() or 0), os.WTERMSIG(status)


def loaded(folder):
    """Which of the moments it is, to the last bit; and nothing else is as good."""

    def program():
        zero = stage_1(Small())
        checkpoint.load(zero, folder)
        return checkpoint.gathered(zero)

    found = tinydist.launch(program, 3).results[0]
    torch.testing.assert_close(found["parameters"], moments[found["step"] - 1]["parameters"], rtol=0, atol=0)
    return found["step"]


if __name__ == "__main__":
    folder, kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    moments = list(tinydist.launch(lambda: list(states()), 2).results[0])
    draw = random.Random(seed)
    lines, _ = child(folder, moments[0])
    size = max(path.stat().st_size for path in checkpoint_files.Path(folder).rglob("*") if path.is_file())
    for number in range(kills):
        before = loaded(folder)
        moment = {"line": draw.randrange(lines)} if number % 2 else {"byte": draw.randrange(size)}
        _, died = child(folder, moments[2 - before], **moment)
        print(json.dumps({**moment, "died": died, "before": before, "after": loaded(folder)}))
    child(folder, moments[0])
    print(json.dumps({"left": len(os.listdir(folder)), "found": loaded(folder)}))
