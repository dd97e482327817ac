"""The notebook's names, as a rank gets them: copies, on simulated ranks as on processes.

Modules are shared, and what is imported from them. A function of the notebook becomes the rank's own, which looks its
globals up among the rank's names; so does a class, with its methods.
"""

import io
import pickle
from contextlib import suppress
from types import FunctionType

import cloudpickle

from . import room


class TheRanksNames:
    """Stands for the notebook's names where a function looks up its globals."""

    def __reduce__(self):
        return room.names_here, ()


class TheRanksClass:
    """Stands for the key by which cloudpickle finds a class again: in one process each rank has a class of its own."""

    def __init__(self, key):
        self.key = key

    def __reduce__(self):
        return room.key_here, (self.key,)


class Copier(cloudpickle.Pickler):
    """Writes copies of what is in ``notebook``, its names. ``used``: those that functions written so far look up."""

    def __init__(self, file, notebook):
        super().__init__(file)
        self.notebook, self.used = notebook, set()

    def reducer_override(self, thing):
        reduced = super().reducer_override(thing)
        if reduced is NotImplemented:
            return reduced
        if isinstance(thing, FunctionType) and thing.__globals__ is self.notebook:
            make, (code, _, *others), (attributes, slots), *rest = reduced
            self.used |= slots["__globals__"].keys()
            slots["__globals__"] = {}
            return make, (code, TheRanksNames(), *others), (attributes, slots), *rest
        if isinstance(thing, type) and len(reduced) > 2:  # else a type of Python's
            make, (*parts, key, extra), *rest = reduced
            return make, (*parts, TheRanksClass(key), extra), *rest
        return reduced


def copies(notebook, names, own):
    """Bytes that hold what ``names`` are, and what the functions among them use, but not what is the ranks' ``own``
    already; name -> why there is no copy; all names, ``own`` among them."""
    file, uncopied, done, left = io.BytesIO(), {}, set(own), set(names) - own
    copier = Copier(file, notebook)
    while left:
        name = min(left)
        done.add(name)
        if name in notebook:
            before, end = copier.memo.copy(), file.tell()
            try:
                copier.dump((name, notebook[name]))
            except Exception as error:
                uncopied[name] = str(error)
                copier.memo = before  # nothing of it was written
                file.seek(end), file.truncate()
        left = (left | copier.used) - done
    return file.getvalue(), uncopied, done


def unpacked(packed):
    """(name, value) one after another; what two of them share they share here too."""
    unpickler = pickle.Unpickler(io.BytesIO(packed))
    with suppress(EOFError):
        while True:
            yield unpickler.load()
