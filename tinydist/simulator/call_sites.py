"""Call sites: the line of the user's code that made a call, cheap to record and formatted only in an error."""

import linecache
import os
import sys
import sysconfig
from importlib.util import find_spec
from types import TracebackType

TINYDIST, *TORCH = (  # the scheduler, and so this, is there without torch, too
    os.path.dirname(found.origin) + os.sep for found in map(find_spec, ("tinydist", "torch")) if found
)
STARTERS = tuple(
    TINYDIST + name.replace("/", os.sep)
    for name in (
        *("launching/", "processes/", "simulator/", "tracing/", "torch_internals/", "gpus/"),
        *("magic/", "testing/", "scripts/"),
    )
)
STDLIB = sysconfig.get_path("stdlib") + os.sep
# A user's own, Debian's, and those of the Python under an environment are among them
INSTALLED = tuple(path + os.sep for path in sys.path if path.endswith(("site-packages", "dist-packages")))
LIBRARIES = (*TORCH, TINYDIST, STDLIB, *INSTALLED, "<frozen")


class Libraries(dict):
    """File name -> is it of a library, and so none of the learner's?"""

    def __missing__(self, name):
        self[name] = name.startswith(LIBRARIES)
        return self[name]


is_library = Libraries()


def count_as_library(folder):
    """What is in ``folder`` is no code of the learner's."""
    global LIBRARIES
    if folder not in LIBRARIES:
        LIBRARIES += (folder,)
        is_library.clear()


class CallSite:
    """A code object and the index of an instruction: holds no frame, and so none of the program's tensors."""

    __slots__ = ("code", "instruction")

    def __init__(self, frame, instruction=None):
        self.code, self.instruction = frame.f_code, frame.f_lasti if instruction is None else instruction

    def __eq__(self, other):
        return (self.code, self.instruction) == (other.code, other.instruction)

    def __hash__(self):
        return hash((self.code.co_filename, self.instruction))  # ranks may have loaded the same module each

    @property
    def line(self):
        for start, end, line in self.code.co_lines():
            if start <= self.instruction < end and line is not None:
                return line
        return self.code.co_firstlineno

    def __str__(self):
        name, line = self.code.co_filename, self.line
        text = linecache.getline(name, line).strip()
        where = f"{_title(name)}, line {line}"
        if self.code.co_name != "<module>":
            where += f", in {self.code.co_name}"
        return f"{where}: {text}" if text else where


def here():
    """The learner's line that is being run in this thread."""
    return site_of(sys._getframe(1))


def site_of(frame):
    """The learner's line that led to ``frame``; where there is none, the frame itself."""
    learner = frame
    while learner is not None and is_library[learner.f_code.co_filename]:
        learner = learner.f_back
    return CallSite(learner or frame)


def site_of_traceback(link):
    """The last of the learner's lines in it; None if there is none."""
    site = None
    while link:
        if not is_library[link.tb_frame.f_code.co_filename]:
            site = CallSite(link.tb_frame, link.tb_lasti)
        link = link.tb_next
    return site


def _title(filename):
    """A file as its reader knows it: relative to the folder of work, and a notebook's cell by its number."""
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    if shell:
        label = _cell(shell, filename)
        if label:
            return " ".join(label)
    relative = os.path.relpath(filename) if os.path.exists(filename) else filename
    return filename if relative.startswith("..") else relative


def _cell(shell, filename):
    """What IPython calls a cell. Version 7, which Colab has, keeps no names: it is looked for among the inputs."""
    if hasattr(shell.compile, "format_code_name"):
        return shell.compile.format_code_name(filename)
    inputs = enumerate(shell.history_manager.input_hist_raw)
    found = [number for number, code in inputs if shell.compile.get_code_name(code, code, number) == filename]
    return found and ("Cell", f"In[{found[-1]}]")


def learners_traceback(error):
    """The traceback of ``error`` without the frames that started the ranks; if tinydist raised it, without those of
    torch and tinydist that lie behind the learner's last line, too."""
    links = []
    link = error.__traceback__
    while link:
        links.append(link)
        link = link.tb_next
    ours = links[-1].tb_frame.f_code.co_filename.startswith(TINYDIST)
    left_out = LIBRARIES if ours else STARTERS
    kept = None
    for link in reversed(links):
        if not link.tb_frame.f_code.co_filename.startswith(left_out):
            kept = TracebackType(kept, link.tb_frame, link.tb_lasti, link.tb_lineno)
    return kept
