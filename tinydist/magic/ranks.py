"""``ranks[2].loss``: the variables of a rank, seen from the notebook."""

import difflib

import cloudpickle

from .. import processes
from .room import Gone, look


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
        raise AttributeError(f"rank {self._number}: its variables are set in a %%ranks cell, by itself")

    def __dir__(self):
        return [name for name in self._variables if not name.startswith("__")]

    def __reduce__(self):
        raise TypeError("ranks are looked at in the notebook alone")

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
