"""Namespaces of ranks: copies of the notebook's variables, and a rank's state between cells.

On simulated ranks as on processes a rank gets copies. Modules are shared, and what is imported from them. A function of
the notebook becomes the rank's own, which looks its globals up in the rank's namespace; so does a class, with its
methods. Simulated ranks have a namespace each in the kernel; a process has its own.
"""

import io
import pickle
import random
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FunctionType

import cloudpickle
import numpy
import torch
import torch.distributed as dist

namespaces = {}  # rank -> Namespace
session = None  # the number of the session to which they belong


class Namespace:
    def __init__(self):
        self.names = {"__name__": "__main__"}
        self.drawn = None  # states of the random generators
        self.simulation = None  # of its last cell; None: a process's groups live as long as it

    @contextmanager
    def entered(self):
        """Random generators go on where the last cell ended, and groups that the rank has kept can be used."""
        earlier, self.simulation = self.simulation, getattr(dist.group.WORLD, "simulation", None)
        if earlier:
            self.simulation.go_on_from(earlier)
        if self.drawn:
            torch.set_rng_state(self.drawn[0]), random.setstate(self.drawn[1]), numpy.random.set_state(self.drawn[2])
        yield self.names
        self.drawn = torch.get_rng_state(), random.getstate(), numpy.random.get_state()


def enter(number, began):
    """The rank's variables, in a context. Those of another session are dropped."""
    global session
    if session != number:
        if began:
            raise RuntimeError("the processes that kept the ranks' variables have exited: start again")
        namespaces.clear()
        session = number
    return namespace_here().entered()


def namespace_here():
    return namespaces.setdefault(dist.get_rank(), Namespace())


@dataclass
class Gone:
    """A variable that cannot be read."""

    why: str


def look(number, rank, name):
    """A variable of ``rank`` as bytes, where that is this process; or Gone."""
    if session != number or rank not in namespaces:
        return Gone("its process has exited, or a later %%ranks cell started new ranks")
    try:
        return cloudpickle.dumps(namespaces[rank].names[name])
    except Exception as error:  # whatever a library raises there; the ranks go on
        return Gone(f"it cannot be copied to the notebook ({error}). Print it in a %%ranks cell")


# Copies of the notebook's variables.


def globals_here():
    return namespace_here().names


def class_key_here(key):
    """In one process each rank has a class of its own."""
    return f"{key} of rank {dist.get_rank()}"


class Late:
    """Stands for what ``function(*args)`` returns on the rank that unpickles it."""

    def __init__(self, function, *args):
        self.reduced = function, args

    def __reduce__(self):
        return self.reduced


class Copier(cloudpickle.Pickler):
    """Pickles copies of the variables of ``notebook``. ``used``: those that the functions among them look up."""

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
            return make, (code, Late(globals_here), *others), (attributes, slots), *rest
        if isinstance(thing, type) and len(reduced) > 2:  # else a type of Python's
            make, (*parts, key, extra), *rest = reduced  # the key by which cloudpickle finds a class again
            return make, (*parts, Late(class_key_here, key), extra), *rest
        return reduced


def copies(notebook, names, own):
    """Bytes that hold the variables ``names`` and those that functions among them use, but not what is the ranks'
    ``own`` already; name -> why there is no copy; all names, ``own`` among them."""
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
