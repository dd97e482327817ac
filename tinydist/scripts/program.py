"""The program of a rank: a script, or a module as ``python -m`` runs it, in a ``__main__`` of the rank's own."""

import builtins
import importlib.util
import os
import sys
from functools import cached_property
from types import ModuleType


class Program:
    """``python script.py arguments`` or ``python -m module arguments``."""

    def __init__(self, target, arguments=(), module=False):
        self.target, self.arguments, self.module = target, list(arguments), module
        if not module and not os.path.isfile(target):
            raise ValueError(f"run: {no_script(target)}")
        sys_path = path_for(os.getcwd())
        if module and not found(target.partition(".")[0], sys_path):
            raise ValueError(f"run: no module named {target!r} in {os.getcwd()} or among the installed packages")
        self.path = sys_path if module else path_for(os.path.dirname(os.path.realpath(target)))
        self.argv = [target, *self.arguments]

    def __str__(self):
        return self.target

    def run(self, name="__main__"):
        """On a rank, in its own interpreter. ``name``: what the program finds in ``__name__``."""
        spec, code = self._spec_and_code()
        main = ModuleType(name)
        main.__file__ = spec.origin if spec else code.co_filename
        main.__spec__, main.__builtins__ = spec, builtins
        main.__package__ = spec.parent if spec else None
        main.__loader__ = spec.loader if spec else None
        sys.modules["__main__"] = sys.modules["__mp_main__"] = main  # as multiprocessing calls it
        exec(code, main.__dict__)
        return main

    def _spec_and_code(self):
        if not self.module:
            return None, self._code
        spec = importlib.util.find_spec(self.target)  # which imports the packages that it is in
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{self.target}.__main__")
        if spec is None:
            raise ImportError(f"run: python -m {self.target}: no such module, or a package without __main__.py")
        sys.argv[0] = spec.origin
        return spec, spec.loader.get_code(spec.name)

    @cached_property
    def _code(self):
        """Compiled once: ranks that wait on the same line stand together in a report."""
        with open(self.target, "rb") as file:
            return compile(file.read(), os.path.abspath(self.target), "exec", dont_inherit=True)


def path_for(folder):
    """sys.path with ``folder`` in the place of what Python put there for the command itself."""
    its_own = {"", os.getcwd(), os.path.dirname(os.path.abspath(sys.argv[0]))}
    return [folder, *(sys.path[1:] if sys.path and sys.path[0] in its_own else sys.path)]


def found(name, path):
    before, sys.path = sys.path, path
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    finally:
        sys.path = before


def no_script(target):
    if os.path.isdir(target):
        return f"{target} is a folder; pass a Python script, or a module with -m"
    return f"no script {target} (in {os.getcwd()}); a module is run with -m"
