"""Sessions: ranks that keep their variables between cells, and access to them from the notebook."""

import difflib
import itertools

import cloudpickle

from .. import processes
from ..gpus.rank_gpus import of_thread as here
from ..launching.launch import launch
from . import namespace
from .namespace import Gone, copies, enter, look, unpacked

numbers = itertools.count(1)
ABSENT = object()


class RanksSession:
    """``ranks``: their variables. A name of the notebook's is their own from its first use, until the notebook binds it
    anew. An error ends them: one may have gone further than another."""

    def __init__(self, size, backend):
        self.number, self.size, self.backend = next(numbers), size, backend
        self.ranks, self.known = (), {}  # name -> what it was in the notebook then, if anything

    def run(self, cell, notebook, **options):
        """The Run of the cell; its results say how each rank writes the last line's value. ``options``: launch's."""
        own = {name for name, thing in self.known.items() if notebook.get(name, ABSENT) is thing}
        packed, uncopied, looked_up = copies(notebook, cell.names | self.known.keys() - own, own)
        began, variables = bool(self.ranks), []
        program = self.number, began, packed, uncopied, cell.body, cell.last
        try:
            run = launch(run_cell, self.size, *program, backend=self.backend, **options)
            run.results, names = zip(*(each or (None, ()) for each in run.results))  # None: it has called sys.exit(0)
            world = dict(ranks=self.size, backend=run.backend)
            variables = [OfProcess(self.number, rank, each, world) for rank, each in enumerate(names)]
        except BaseException as error:
            if began:
                error.add_note("The ranks ended and their variables are lost: the next %%ranks cell starts new ones.")
            raise
        finally:
            if namespace.session == self.number:  # they are simulated, and can be looked at whatever has happened
                kept = namespace.namespaces
                variables = [getattr(kept.get(rank), "names", {}) for rank in range(self.size)]
            self.ranks = Ranks(map(Rank, range(self.size), variables))
        self.known = {name: notebook.get(name, ABSENT) for name in looked_up.union(*variables) - uncopied.keys()}
        return run


# What is seen of them.


class Ranks(tuple):
    """The ranks of the last ``%%ranks`` cell: ``ranks[2].loss`` is a variable of rank 2. ``ranks.run``: its Run."""

    run = None

    def __repr__(self):
        everywhere = set.intersection(*(set(dir(rank)) for rank in self))
        return f"<{len(self)} ranks: {', '.join(sorted(everywhere - {'_'})) or 'no variables'}>"


class Rank:
    """Its variables are its attributes: of a simulated rank the objects themselves, of a process copies."""

    def __init__(self, number, variables):
        vars(self).update(_number=number, _variables=variables)

    def __getattr__(self, name):
        if name in self._variables:
            return self._variables[name]
        close = difflib.get_close_matches(name, dir(self))
        meant = f". Did you mean {' or '.join(close)}?" if close else ""
        raise AttributeError(f"rank {self._number} has no variable {name!r}{meant}")

    def __setattr__(self, name, value):
        raise AttributeError(f"rank {self._number}: its variables can only be set in a %%ranks cell, by itself")

    def __dir__(self):
        return [name for name in self._variables if not name.startswith("__")]

    def __reduce__(self):
        raise TypeError("ranks cannot be pickled, only used in the notebook")

    def __repr__(self):
        return f"<rank {self._number}: {', '.join(dir(self)) or 'no variables'}>"


class OfProcess:
    """The variables of a rank that is a process, fetched when they are looked at."""

    def __init__(self, session, rank, names, world):
        self.session, self.rank, self.names, self.world = session, rank, names, world

    def __iter__(self):
        return iter(self.names)

    def __getitem__(self, name):
        found = processes.run(look, args=(self.session, self.rank, name), init=False, **self.world)[self.rank]
        if isinstance(found, Gone):
            raise RuntimeError(f"rank {self.rank}: {name}: {found.why}")
        return cloudpickle.loads(found)


# What a rank does with a cell.


GPUS = "__gpus__"  # the name of what the rank's last cell knew of its GPUs
RESULT = "_"  # the name of what the last line came to, as in Python's own prompt


def run_cell(session, began, packed, uncopied, body, last):
    """How the value of the last line is written (None: it has none), and the rank's names.

    ``began``: it has run a cell of this session before. ``uncopied``: names of the notebook -> why no rank has them.
    """
    with enter(session, began) as names:
        if here.gpus:
            here.gpus.go_on_from(names.get(GPUS))
            names[GPUS] = here.gpus
        names.update(unpacked(packed))
        try:
            exec(body, names)
            value = eval(last, names) if last else None
        except NameError as error:
            if error.name in uncopied:
                error.add_note(f"The notebook has {error.name}, but each rank needs a copy: {uncopied[error.name]}")
            raise
        if value is None:
            return None, variables(names)
        names[RESULT] = value
        return repr(value), variables(names)


def variables(names):
    return [name for name in names if not name.startswith("__")]
