"""Processes that need not load torch: they are forked from one that has loaded it, in which nothing else happens.

Each knows as little of the others as one that starts anew, and costs a hundredth. Kernels of Jupyter and workers of
``tinydist.processes`` are made so, also those that a kernel starts.
"""

import atexit
import gc
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import threading
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from unittest.mock import patch

from jupyter_client.provisioning import LocalProvisioner

LOADED = (
    "ipykernel.debugger ipykernel.ipkernel ipykernel.kernelapp ipykernel.zmqshell IPython ipywidgets torch._dynamo "
    "tinydist.lab.reader tinydist.magic tinydist.processes.worker tinydist.visuals tinydist.launching.backends"
)
# A kernel says so before it loads matplotlib; notebooks, before they load Triton, that kernels are interpreted
TOLD = {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "TRITON_INTERPRET": "1"}
TOLD |= {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}  # else the debugger warns, which kernels load and nobody uses
TESTS = str(Path(__file__).parent)

warm = multiprocessing.get_context("forkserver")
warm.set_forkserver_preload(LOADED.split())


class Warm:
    """A process that lives as ``life(*arguments)``; to its owner what subprocess.Popen would be."""

    stdin = stdout = stderr = None

    def __init__(self, environment, life, *arguments):
        self.process = warm.Process(target=live, args=(environment, life, *arguments), daemon=True)
        # For the process from which all are forked, and so that this one can find this file
        with patch.dict(os.environ, TOLD), patch.object(sys, "path", [*sys.path, TESTS]):
            # It needs no __main__; and Triton's interpreter leaves the path of its own file in that of a notebook
            with patch.object(sys.modules["__main__"], "__file__", None, create=True):
                self.process.start()
        self.pid, self.kill, self.terminate = self.process.pid, self.process.kill, self.process.terminate

    def poll(self):
        return self.process.exitcode

    returncode = property(poll)

    def wait(self):
        self.process.join()
        return self.returncode

    def send_signal(self, number):
        os.kill(self.pid, number)


def live(environment, life, *arguments):
    multiprocessing.current_process().daemon = False  # it may have children,
    forkserver._forkserver.ensure_running = resource_tracker.ensure_running  # from the process that it comes from
    gc.freeze()  # what is loaded stays
    os.setsid()
    os.environ.clear(), os.environ.update(environment)
    if "TINYDIST_LAST_BITS" in environment:  # `make processors` sets it
        import last_bits  # noqa: F401
    try:
        life(*arguments)
    finally:
        atexit._run_exitfuncs()


def start_workers_so():
    from tinydist.processes import pool

    pool.start_worker = start_worker


def worker(stdin, stdout):
    from tinydist.processes.worker import work

    for number, end in enumerate((stdin, stdout)):
        os.dup2(end.fileno(), number)
        end.close()
    work()


def start_worker():
    (its_in, stdin), (stdout, its_out) = warm.Pipe(duplex=False), warm.Pipe(duplex=False)
    process = Warm(os.environ | {"TINYDIST_QUIET": "1"}, worker, its_in, its_out)
    process.stdin, process.stdout = os.fdopen(os.dup(stdin.fileno()), "wb"), os.fdopen(os.dup(stdout.fileno()), "rb")
    for end in (its_in, stdin, stdout, its_out):
        end.close()
    return process


def told_by(*command):
    """What a script of Python prints, in a process of its own with one thread."""
    command = [str(word) for word in command]
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "output")
        if sys.platform == "linux":
            status = Warm(dict(os.environ), script, output, command).wait()
        else:
            path = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
            with open(output, "w") as file:
                status = subprocess.call([sys.executable, *command], stdout=file, stderr=file, env=os.environ | path)
        said = Path(output).read_text()
    assert status == 0, said
    return said


def script(output, command):
    import torch

    with open(output, "w") as file:
        os.dup2(file.fileno(), 1), os.dup2(file.fileno(), 2)
    torch.set_num_threads(1)
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")


def kernel(command, folder):
    os.chdir(folder)
    asked = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[:] = asked + [each for each in sys.path if each != TESTS]
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(silence, stream)
    threading.Thread(target=end_with, args=[multiprocessing.parent_process()], daemon=True).start()
    start_workers_so()
    _, _, module, *sys.argv[1:] = command
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def end_with(parent):
    parent.join()
    os._exit(1)


class WarmKernel(LocalProvisioner):
    async def launch_kernel(self, cmd, env, cwd=None, **_):
        self.process = Warm(env, kernel, cmd, cwd or os.getcwd())
        self.pid = self.process.pid
        return self.connection_info
