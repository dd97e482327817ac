"""Ranks that run one cell, or several that share their variables; what the notebook knows of them."""

import itertools

from ..launching.launch import launch
from . import room
from .copies import copies
from .program import run_cell
from .ranks import OfProcess, Rank, Ranks

numbers = itertools.count(1)
ABSENT = object()


class Session:
    """``ranks``: their variables. A name of the notebook's is their own from its first use, until the notebook binds it
    anew. An error ends them: one may have gone further than another."""

    def __init__(self, size, backend):
        self.number, self.size, self.backend = next(numbers), size, backend
        self.ranks, self.known = (), {}  # name -> what it was in the notebook then, if anything

    def run(self, cell, notebook, cluster):
        """The Run of the cell; its results say how each rank writes what the last line came to."""
        own = {name for name, thing in self.known.items() if notebook.get(name, ABSENT) is thing}
        packed, uncopied, looked_up = copies(notebook, cell.names | self.known.keys() - own, own)
        began, variables = bool(self.ranks), []
        program = self.number, began, packed, uncopied, cell.body, cell.last
        try:
            run = launch(run_cell, self.size, *program, backend=self.backend, cluster=cluster)
            run.results, names = zip(*(each or (None, ()) for each in run.results))  # None: it has called sys.exit(0)
            world = dict(ranks=self.size, backend=run.backend)
            variables = [OfProcess(self.number, rank, each, world) for rank, each in enumerate(names)]
        except BaseException as error:
            if began:
                error.add_note("The ranks have ended with what they kept: the next %%ranks cell begins anew.")
            raise
        finally:
            if room.session == self.number:  # they are simulated, and can be looked at whatever has happened
                variables = [room.rooms[rank].names if rank in room.rooms else {} for rank in range(self.size)]
            self.ranks = Ranks(map(Rank, range(self.size), variables))
        self.known = {name: notebook.get(name, ABSENT) for name in looked_up.union(*variables) - uncopied.keys()}
        return run
