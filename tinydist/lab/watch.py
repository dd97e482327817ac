"""What an answer does, seen while it runs: the functions that are called, and whether all of it can be seen.

A module can be imported by a text or be found in ``sys.modules``, so names in the code would not tell: Python itself
tells of each function that begins. Torch's own are not Python's: it tells of them itself.
"""

from torch.overrides import TorchFunctionMode

from ..simulator.torch_internals import dispatch_is_seen
from .limit import Limit

UNSEEN = {
    "threading.Thread.start": "a thread of its own, whose work is not seen",
    "multiprocessing.process.BaseProcess.start": "another process, whose work is not seen",
    "subprocess.Popen.__init__": "another process, whose work is not seen",
}


class Watch(Limit):
    """For one rank, in one run. ``called``: names of functions, from their modules on; ``torchs``: of torch's, those
    with the word ``listen`` in them; ``unseen``: torch's dispatch was switched off, so nothing was counted."""

    def __init__(self, listen=""):
        super().__init__()
        self.codes, self.torchs, self.unseen = {}, set(), False
        self.listener = listen and Listener(listen, self.torchs)

    @property
    def called(self):
        return {f"{module}.{code.co_qualname}" for code, module in self.codes.values()}

    @property
    def not_seen(self):
        return [(name, what) for name, what in UNSEEN.items() if name in self.called]

    def __enter__(self):
        if self.listener:
            self.listener.__enter__()
        super().__enter__()

    def __exit__(self, *error):
        super().__exit__()
        if self.listener:
            self.listener.__exit__(*error)

    def function_begins(self, frame, event, argument):
        code, module = frame.f_code, frame.f_globals.get("__name__") or ""
        if id(code) not in self.codes:  # a code takes long to hash
            self.codes[id(code)] = code, module
        if module.startswith("namedtuple_"):  # Python's, of no file: torch and tinydist make some while they count
            return None
        return super().function_begins(frame, event, argument)

    def instruction(self, frame, event, argument):
        if not dispatch_is_seen():
            self.unseen = True
        return super().instruction(frame, event, argument)


class Listener(TorchFunctionMode):
    def __init__(self, word, names):
        super().__init__()
        self.word, self.names = word, names

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if self.word in name:
            self.names.add(name)
        return function(*args, **(kwargs or {}))


def within(whole, name):
    """Is it a module or function of that name, or one in it?"""
    return f"{name}.".startswith(f"{whole}.")
